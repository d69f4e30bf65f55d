#include <cmath>

#include "run_report/assets.h"
#include "run_report/encode.h"
#include "run_report/gemm_line.h"
#include "run_report/made_run.h"

namespace octavo::run_report {
namespace {

using PageTest = RunFolderTest;

TEST(Encode, NumbersAreShortAndFinite) {
  EXPECT_EQ(short_number(0.123456789).dump(), "0.123457");
  EXPECT_EQ(short_number(3.0).dump(), "3");
  EXPECT_EQ(short_number(-1.5e300).dump(), "-1.5e+300");
  EXPECT_EQ(short_number(1.7976931348623157e308).dump(), "1.79769e+308");
  EXPECT_TRUE(short_number(NAN).is_null());
}

TEST(Encode, Base64IsThatOfTheStandard) {  // RFC 4648, section 10
  const auto of = [](std::string_view text) {
    return base64({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  };
  EXPECT_EQ(of(""), "");
  EXPECT_EQ(of("f"), "Zg==");
  EXPECT_EQ(of("fo"), "Zm8=");
  EXPECT_EQ(of("foo"), "Zm9v");
  EXPECT_EQ(of("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64_of_hex("666f6F"), "Zm9v");
}

TEST(Encode, NothingEndsTheScriptElement) {
  const std::string text = json_for_script({{"a", "</script><!--<script>&\xff"}});
  EXPECT_EQ(text.find_first_of("<>&"), std::string::npos);
  EXPECT_EQ(Json::parse(text)["a"], "</script><!--<script>&\xEF\xBF\xBD");
}

TEST(GemmLines, BlocksThatAgreeBecomeOneGroup) {
  std::vector<GemmLine> lines;
  for (const char* layer : {"h.0.fc", "h.1.fc", "h.10.fc"})
    lines.push_back({layer, "forward", "FP8 e4m3 x e4m3", "delayed", "", 0.1, 5, 0});
  lines.push_back({"head", "all three", "BF16", "", "stays", 0.7, 0, 5});
  const auto groups = grouped(lines);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].name(), "h.*.fc (3)");
  EXPECT_NEAR(groups[0].line.flops_share, 0.3, 1e-12);
  EXPECT_EQ(groups[0].line.ran_fp8, 15);
  EXPECT_EQ(groups[1].name(), "head");
}

TEST(GemmLines, OfExpertsALineStandsForSeveral) {
  std::vector<GemmLine> lines;
  for (const char* layer : {"l.0.experts.*.up", "l.1.experts.*.up"})
    lines.push_back({layer, "forward", "BF16", "", "", 0.1, 0, 5, 128});
  const auto groups = grouped(lines);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].name(), "l.*.experts.*.up (256)");
  EXPECT_EQ(groups[0].line.ran_other, 10);
}

TEST_F(PageTest, HasEverySeriesAndWhatDiffersFromTheDefaults) {
  write("metrics.jsonl", lines(20));
  write("config.yaml", "max_steps: 20\nseed: 7\nmodel_name: gpt2\n");
  const Json data = page_data(read());
  for (const char* name : {"loss", "lr", "grad", "speed", "seconds", "wait", "peak", "kept"}) {
    ASSERT_TRUE(data["steps"]["series"].contains(name)) << name;
    EXPECT_EQ(data["steps"]["series"][name]["mean"].size(), 20u) << name;
  }
  EXPECT_FALSE(data["steps"]["series"].contains("mfu"));
  EXPECT_FALSE(data["steps"]["series"].contains("fullest"));
  std::vector<std::string> changed;
  for (const Json& row : data["config"]["changed"]) changed.push_back(row[0]);
  EXPECT_EQ(changed, (std::vector<std::string>{"max_steps", "seed"}));
}

TEST_F(PageTest, HasTheLoadOfExpertsWhereThereAreSome) {
  std::string text;
  for (int64_t i = 1; i <= 5; ++i) {
    Json record = step(i, 3);
    record["moe/fullest_share"] = 0.5;
    record["moe/emptiest_share"] = 0.01 * static_cast<double>(i);
    record["moe/idle_experts"] = 3;
    record["moe/balance_loss"] = 2.25;
    text += record.dump() + "\n";
  }
  write("metrics.jsonl", text);
  const Json series = page_data(read())["steps"]["series"];
  EXPECT_EQ(series["fullest"]["mean"][4], 0.5);
  EXPECT_EQ(series["emptiest"]["mean"][4], 0.05);
  EXPECT_EQ(series["idleExperts"]["mean"][0], 3);
  EXPECT_EQ(series["balance"]["mean"][0], 2.25);
}

TEST_F(PageTest, LongRunsAreJoinedAndSayHow) {
  write("metrics.jsonl", lines(5000));
  const Json steps = page_data(read())["steps"];
  EXPECT_EQ(steps["width"], 8);
  EXPECT_EQ(steps["records"], 5000);
  EXPECT_EQ(steps["first"].size(), 625u);
  EXPECT_EQ(steps["last"][0], 8);
  EXPECT_NEAR(steps["series"]["loss"]["min"][0].get<double>(), 4 - 0.008, 1e-6);
  EXPECT_NEAR(steps["series"]["loss"]["max"][0].get<double>(), 4 - 0.001, 1e-6);
  EXPECT_NEAR(steps["series"]["loss"]["mean"][0].get<double>(), 4 - 0.0045, 1e-6);
}

// Names of keys come from the table; every other word of the page that a file can choose is here.
TEST_F(PageTest, NothingOfARunBecomesMarkup) {
  const std::string evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'";
  Json record = step(1, 2);
  record["precision"] = evil;
  record["fp8/tensors"] = {tensor(evil, evil, 30, evil)};
  Json flag = {{"step", 1}, {"flag", evil}, {"seen", evil}, {"remedy", evil}};
  write("metrics.jsonl", record.dump() + "\n" + flag.dump() + "\n");
  const Json incident = {{"step", 1}, {"kind", evil}, {"what", evil}, {"action", evil}};
  write("incidents.jsonl", incident.dump() + "\n");
  write("restarts.jsonl", Json{{"step", 1}, {"from", evil}, {"time", evil}}.dump() + "\n");
  const Json receipt = {
      {"status", evil},
      {"device", evil},
      {evil, evil},
      {"operations", {{{"op", evil}, {"ran", evil}, {"refused", Json::array()}}}},
      {"fp8", {{"gemms", {{{"layer", evil}, {"gemm", evil}, {"precision", evil}}}}}}};
  write("receipt.json", receipt.dump());
  write("config.yaml", Json{{"sample_prompt", evil}}.dump());
  write("samples/step-1.txt", evil + "\xff\xfe\x01");
  const std::string page = page_of(read());
  EXPECT_EQ(page.find("<img"), std::string::npos);
  size_t scripts = 0;
  for (size_t at = page.find("<script"); at != page.npos; at = page.find("<script", at + 1))
    ++scripts;
  EXPECT_EQ(scripts, 2u);
  EXPECT_NE(page.find("onerror"), std::string::npos);  // it is there, as text
}

TEST_F(PageTest, RandomBytesGiveAPageOrAnError) {
  uint64_t state = 9;
  for (int round = 0; round < 200; ++round) {
    std::string text = lines(4) + R"({"step":3,"fp8/tensors":[{"layer":1,"scale":1e999},[],3]})";
    for (int i = 0; i < 20; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text[(state >> 33) % text.size()] = static_cast<char>(state >> 56);
    }
    write("metrics.jsonl", text);
    write("receipt.json", text.substr(0, text.find('\n')));
    const std::string page = page_of(read());
    EXPECT_NE(page.find("</html>"), std::string::npos);
  }
}

// What a browser may run is told by its hash; the file that CMake wrote must be that of its script.
TEST(Assets, TheScriptHasNoWayToBecomeMarkup) {
  EXPECT_EQ(kScriptSha256.size(), 64u);
  EXPECT_EQ(kScript.find("</script"), std::string_view::npos);
  for (const char* word :
       {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("})
    EXPECT_EQ(kScript.find(word), std::string_view::npos) << word;
}

}  // namespace
}  // namespace octavo::run_report
