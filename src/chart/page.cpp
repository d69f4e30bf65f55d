#include "chart/page.h"

#include <algorithm>

#include "base/error.h"
#include "chart/escape.h"

namespace octavo::chart {
namespace {

constexpr const char* kStyle =
    "body{margin:0;background:#f6f8fa;color:#24292f;font:15px/1.5 -apple-system,'Segoe UI',"
    "'Helvetica Neue',Helvetica,Arial,'Liberation Sans','DejaVu Sans',sans-serif}\n"
    "main{max-width:900px;margin:24px auto;padding:8px 40px 40px;background:#fff;"
    "border:1px solid #d8dee4;border-radius:8px}\n"
    "h1{font-size:24px;margin:24px 0 8px;overflow-wrap:anywhere}"
    "h2{font-size:18px;margin:36px 0 8px;padding-bottom:4px;border-bottom:1px solid #d8dee4}\n"
    "p{margin:8px 0;overflow-wrap:anywhere}"
    "figure{margin:16px 0}figure svg{display:block;width:100%;height:auto}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;margin:12px 0;font-size:14px;"
    "font-variant-numeric:tabular-nums}\n"
    "th,td{padding:5px 14px 5px 0;text-align:left;vertical-align:top;border-bottom:1px solid "
    "#e4e8ec}th{color:#57606a;font-weight:600}.n{text-align:right}.n,.k{white-space:nowrap}\n"
    "pre{background:#f6f8fa;border:1px solid #e4e8ec;border-radius:6px;padding:10px 12px;"
    "font:12.5px/1.45 ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "white-space:pre-wrap;overflow-wrap:anywhere}\n"
    ".beside{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:0 16px}"
    ".beside h3{font-size:14px;margin:8px 0 0;color:#57606a}.beside pre{margin-top:4px}\n"
    ".banner{border-radius:8px;padding:12px 18px;margin:16px 0;border:1px solid}"
    ".banner b{font-size:20px;letter-spacing:.02em}\n"
    ".good{color:#0a5a3c}.bad{color:#9a1c13}.unclear{color:#7a4d00}"
    ".banner.good{background:#e3f5ec;border-color:#8fd0b3}.banner.bad{background:#fdeceb;"
    "border-color:#f0a9a4}.banner.unclear{background:#fff5dc;border-color:#e6c983}\n"
    "td.good,td.bad,td.unclear{font-weight:600;white-space:nowrap}\n"
    "@media (max-width:640px){main{margin:0;border:0;padding:0 16px 24px}}\n"
    "@media screen and (prefers-color-scheme:dark){body{background:#010409;color:#e6edf3}"
    "main{background:#0d1117;border-color:#30363d}h2,th,td{border-color:#30363d}"
    "th,.beside h3{color:#9da7b3}pre{background:#161b22;border-color:#30363d}"
    ".good{color:#56d39b}.bad{color:#ff7b72}.unclear{color:#e3b341}"
    ".banner.good{background:#0c2d20;border-color:#1f6f4c}.banner.bad{background:#3a1412;"
    "border-color:#8e2a24}.banner.unclear{background:#33260a;border-color:#7d5f1a}}\n"
    "@media print{body{background:#fff}main{border:0}figure,tr{break-inside:avoid}}\n";

bool numeric(const std::string& cell) {
  return !cell.empty() && cell.find_first_of("0123456789") != std::string::npos &&
         cell.find_first_not_of("0123456789+-.,eEkMGTB%x ") == std::string::npos;
}

const char* kind_of(const std::string& cell) {
  if (cell == "PASS") return "good";
  if (cell == "FAIL") return "bad";
  return cell == "NOT ENOUGH DATA" ? "unclear" : nullptr;
}

}  // namespace

Page::Page(std::string title) : title_(std::move(title)) {}

void Page::heading(const std::string& text) {
  body_ += str("<h2>", escaped(text), "</h2>\n");
}

void Page::text(const std::string& paragraph) {
  body_ += str("<p>", escaped(paragraph), "</p>\n");
}

void Page::table(const std::vector<std::string>& head,
                 const std::vector<std::vector<std::string>>& rows) {
  std::vector<bool> right(head.size(), !rows.empty());
  for (const auto& row : rows)
    for (size_t i = 0; i < std::min(head.size(), row.size()); ++i)
      right[i] = right[i] && (row[i].empty() || row[i] == "–" || numeric(row[i]));
  body_ += "<div class=\"wide\"><table>\n<tr>";
  for (size_t i = 0; i < head.size(); ++i)
    body_ +=
        str("<th scope=\"col\"", right[i] ? " class=\"n\"" : "", ">", escaped(head[i]), "</th>");
  body_ += "</tr>\n";
  for (const auto& row : rows) {
    body_ += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      const char* kind = kind_of(row[i]);
      const bool number = i < right.size() && right[i];
      // Short cells stay in one line; long ones make room for them.
      const char* look = kind != nullptr ? kind : number ? "n" : row[i].size() <= 32 ? "k" : "";
      body_ += *look != '\0' ? str("<td class=\"", look, "\">") : "<td>";
      body_ += str(escaped(row[i]), "</td>");
    }
    body_ += "</tr>\n";
  }
  body_ += "</table></div>\n";
}

void Page::picture(const std::string& svg) {
  body_ += str("<figure>\n", svg, "</figure>\n");
}

void Page::pre(const std::string& text) {
  body_ += str("<pre>", escaped(text), "</pre>\n");
}

void Page::beside(const std::vector<std::pair<std::string, std::string>>& texts) {
  body_ += "<div class=\"beside\">\n";
  for (const auto& [name, text] : texts)
    body_ += str("<div><h3>", escaped(name), "</h3><pre>", escaped(text), "</pre></div>\n");
  body_ += "</div>\n";
}

void Page::banner(const std::string& kind, const std::string& word, const std::string& line) {
  body_ += str("<div class=\"banner ", escaped(kind), "\"><b>", escaped(word), "</b><br>",
               escaped(line), "</div>\n");
}

std::string Page::html() const {
  const std::string title = escaped(title_);
  return str(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      // Whatever text ends up in the page, a browser loads nothing for it.
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'\">\n<title>",
      title, "</title>\n<style>\n", kStyle, "</style>\n</head>\n<body>\n<main>\n<h1>", title,
      "</h1>\n", body_, "</main>\n</body>\n</html>\n");
}

}  // namespace octavo::chart
