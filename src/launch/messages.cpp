#include "launch/messages.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace octavo::launch {
namespace {

using nlohmann::json;

// A week: no wait before a restart is longer.
constexpr int kLongestWait = 7 * 24 * 3600 * 1000, kLastGeneration = 1 << 30, kLastNode = 1 << 20,
              kMostRestarts = 1 << 30;

std::string dumped(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

class Message {
 public:
  explicit Message(const std::string& text) : value_(json::parse(text, nullptr, false)) {}

  bool flag(const char* name) const { return value_.contains(name) && value_[name] == true; }

  int number(const char* name, int least, int most) const {
    return checked(value_.is_object() && value_.contains(name) ? value_[name] : json(), name, least,
                   most);
  }

  std::vector<int> numbers(const char* name, int least, int most) const {
    std::vector<int> all;
    if (!value_.contains(name) || !value_[name].is_array()) return all;
    for (const json& each : value_[name]) all.push_back(checked(each, name, least, most));
    return all;
  }

  std::string text(const char* name) const {
    return value_.contains(name) && value_[name].is_string() ? value_[name].get<std::string>() : "";
  }

 private:
  static int checked(const json& value, const char* name, int least, int most) {
    const int64_t number = value.is_number_integer() ? value.get<int64_t>() : int64_t{least} - 1;
    if (number < least || number > most)
      fail(ExitCode::kEnvironment, "launch", "another node's message: wanted ", name, " from ",
           least, " to ", most, ", found another; do all nodes run the same octavo?");
    return static_cast<int>(number);
  }

  json value_;
};

}  // namespace

std::string left_key(int node) {
  return str("launch/left/", node);
}

std::string node_prefix(int generation) {
  return str("launch/", generation, "/node/");
}

std::string node_key(int generation, int node) {
  return str(node_prefix(generation), node);
}

std::string end_key(int generation, int node) {
  return str("launch/", generation, "/end/", node);
}

std::string verdict_key(int generation) {
  return str("launch/", generation, "/verdict");
}

std::string read_key(int generation, int node) {
  return str("launch/", generation, "/read/", node);
}

std::string written(const Verdict& verdict) {
  const Outcome& outcome = verdict.outcome;
  return dumped({{"restart", verdict.restart},
                 {"wait", verdict.wait.count()},
                 {"code", outcome.code},
                 {"cause", static_cast<int>(outcome.cause)},
                 {"kind", static_cast<int>(outcome.kind)},
                 {"curable", outcome.curable},
                 {"stopped", outcome.stopped},
                 {"rank", outcome.rank},
                 {"what", outcome.what}});
}

Verdict read_verdict(const std::string& text) {
  const Message message(text);
  Verdict verdict;
  verdict.outcome.code = message.number("code", 0, 255);
  verdict.outcome.cause =
      static_cast<Cause>(message.number("cause", 0, static_cast<int>(Cause::kItself)));
  verdict.outcome.kind = static_cast<EndKind>(message.number("kind", 0, kEndKinds - 1));
  verdict.outcome.rank = message.number("rank", -1, 1 << 20);
  verdict.outcome.curable = message.flag("curable");
  verdict.outcome.stopped = message.flag("stopped");
  verdict.outcome.what = message.text("what");
  verdict.restart = message.flag("restart");
  verdict.wait = std::chrono::milliseconds(message.number("wait", 0, kLongestWait));
  return verdict;
}

std::string written(const StartPlan& plan) {
  return dumped({{"generation", plan.generation},
                 {"resume", plan.resume},
                 {"stop", plan.stop},
                 {"code", plan.code},
                 {"nodes", plan.nodes},
                 {"run_name", plan.run_name}});
}

StartPlan read_plan(const std::string& text) {
  const Message message(text);
  return {.generation = message.number("generation", 0, kLastGeneration),
          .resume = message.flag("resume"),
          .run_name = message.text("run_name"),
          .nodes = message.numbers("nodes", 0, kLastNode),
          .stop = message.flag("stop"),
          .code = message.number("code", 0, 255)};
}

std::string written(const RunTerms& terms) {
  return dumped({{"least", terms.least},
                 {"most", terms.most},
                 {"spares", terms.spares},
                 {"local_ranks", terms.local_ranks},
                 {"max_restarts", terms.max_restarts}});
}

RunTerms read_terms(const std::string& text) {
  const Message message(text);
  return {.least = message.number("least", 1, kLastNode),
          .most = message.number("most", 1, kLastNode),
          .spares = message.number("spares", 0, kLastNode),
          .local_ranks = message.number("local_ranks", 1, kLastNode),
          .max_restarts = message.number("max_restarts", 0, kMostRestarts)};
}

}  // namespace octavo::launch
