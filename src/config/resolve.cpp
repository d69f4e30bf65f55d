#include "config/resolve.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "config/key_makers.h"
#include "config/names.h"
#include "config/rules.h"
#include "config/task.h"

namespace octavo::config {
namespace {

using Kind = Origin::Kind;
constexpr Readers kPrecisionReaders = reader::kTrain | reader::kVerify | reader::kPlan;
constexpr Readers kLengthReaders = reader::kTrain | reader::kSchedule;

// What one level (the flags, or the file) says about FP8, and the key that says it.
struct Fp8Choice {
  bool fp8;
  std::string key;
};

class Resolver {
 public:
  Resolver(Parsed& parsed, const Parsed& file, Readers readers)
      : parsed_(parsed), file_(file), readers_(readers), s_(parsed.settings) {}

  void run() {
    resolve_recipe();
    resolve_precision();
    resolve_backend();
    explain_fp8();
    resolve_length();
    resolve_warmup();
    resolve_learning_rate();
    resolve_reduction();
    explain_batch();
    explain_tokenizer();
  }

 private:
  bool is_flag(const std::string& name) const {
    return parsed_.origin_of(name).kind == Kind::kFlag;
  }
  // What the file says of a key, whether or not a flag says otherwise.
  bool in_file(const std::string& name) const { return file_.given(name); }

  // "--mixed_precision bf16", "use_fp8 in train.yaml:3"
  static std::string said(const Parsed& level, const std::string& name) {
    const Key& key = *find_key(name);
    const std::string value = key.load(level.settings).front();
    const Origin origin = level.origin_of(name);
    const bool plain = key.type == Type::kBool && value == "true";
    if (origin.kind == Kind::kFlag)
      return key.type == Type::kBool ? (plain ? "--" : "--no_") + name : "--" + name + " " + value;
    return (plain ? name : name + " " + value) + " in " + origin.text();
  }
  std::string flag(const std::string& name) const { return said(parsed_, name); }
  std::string filed(const std::string& name) const { return said(file_, name); }

  void note(Readers who, const std::string& text) {
    if (who & readers_) parsed_.notes.push_back(text);
  }
  void by_default(Readers who, const std::string& text) {
    if (who & readers_) parsed_.defaults.push_back(text);
  }

  // In the words of the rule, unless the verb's own rules find it in the settings.
  void contradict(std::string_view rule_name, const std::string& one, const std::string& other) {
    for (const Rule& rule : rules()) {
      if (rule.name != rule_name) continue;
      const bool refuses = (rule.readers & readers_) != 0;
      contradicted_ |= refuses;
      if (!refuses || rule.holds(s_))
        parsed_.conflicts.push_back(
            str(rule.reason, " (found ", one, " and ", other, "; rule ", rule_name, ")"));
    }
  }

  // A run's own config.yaml gives every key; those of older versions say mixed_precision bf16
  // beside use_fp8, which then meant FP8.
  bool file_gives_everything() const { return 2 * file_.origins.size() > keys().size(); }

  static std::optional<Fp8Choice> plain_choice(const Parsed& level, Kind kind) {
    const Settings& s = level.settings;
    std::optional<Fp8Choice> choice;
    if (level.given("mixed_precision") && level.origin_of("mixed_precision").kind == kind)
      choice = Fp8Choice{s.mixed_precision == Precision::kFp8, "mixed_precision"};
    if (level.given("use_fp8") && level.origin_of("use_fp8").kind == kind)
      if (!choice || (s.use_fp8 && !choice->fp8)) choice = Fp8Choice{s.use_fp8, "use_fp8"};
    return choice;
  }
  // A recipe that is asked for asks for FP8.
  static std::optional<Fp8Choice> recipe_choice(const Parsed& level, Kind kind) {
    if (level.origin_of("fp8_scenario").kind == kind &&
        level.settings.fp8_scenario != Fp8Scenario::kNone)
      return Fp8Choice{true, "fp8_scenario"};
    if (level.origin_of("fp8_recipe").kind == kind) return Fp8Choice{true, "fp8_recipe"};
    return std::nullopt;
  }

  void refuse_two_precisions(const Parsed& level, Kind kind) {
    const bool both =
        level.origin_of("mixed_precision").kind == kind && level.origin_of("use_fp8").kind == kind;
    const Settings& s = level.settings;
    if (both && s.use_fp8 != (s.mixed_precision == Precision::kFp8))
      contradict("one_precision", said(level, "mixed_precision"), said(level, "use_fp8"));
  }

  void resolve_precision() {
    const auto by_flag = plain_choice(parsed_, Kind::kFlag),
               recipe = recipe_choice(parsed_, Kind::kFlag);
    const auto by_file = plain_choice(file_, Kind::kFile),
               file_recipe = recipe_choice(file_, Kind::kFile);
    refuse_two_precisions(parsed_, Kind::kFlag);
    if (!file_gives_everything()) refuse_two_precisions(file_, Kind::kFile);
    if (by_flag && !by_flag->fp8 && recipe)
      contradict("one_precision", flag(by_flag->key), flag(recipe->key));
    const auto& below = by_file ? by_file : file_recipe;
    const auto& above = by_flag ? by_flag : recipe;
    const auto& decides = above ? above : below;
    if (below) parsed_.file_is_fp8 = below->fp8;
    if (!decides || contradicted_) return;
    decided_by_ = above ? flag(decides->key) : filed(decides->key);
    set_fp8(decides->fp8, decided_by_);
    keep_checkpoint_dir(below ? below->fp8 : by_flag && by_flag->fp8);
    const char* const result = decides->fp8 ? "FP8 on: " : "FP8 off: ";
    if (above && below && above->fp8 != below->fp8)
      why_fp8_ = result + decided_by_ + " overrides " + filed(below->key);
    else if ((above && !below && !by_flag) || (!above && !by_file))
      why_fp8_ = result + decided_by_ + " asks for it";
    else if (!decides->fp8 && !above && file_recipe && !file_gives_everything())
      why_fp8_ = result + decided_by_ + "; " + filed(file_recipe->key) + " is not used";
  }

  // What chooses FP8 kernels, and does not ask for FP8; "": nothing does.
  std::string choice_of_kernels() const {
    const auto chosen = [](const Settings& s, bool te) {
      return te ? s.use_te : s.fp8_backend != Fp8Backend::kAuto;
    };
    for (const bool te : {true, false}) {
      const std::string name = te ? "use_te" : "fp8_backend";
      if (is_flag(name) && chosen(s_, te)) return flag(name);
    }
    // That a flag turns off the FP8 of a file is said without its kernels.
    if (file_gives_everything() || !why_fp8_.empty()) return "";
    for (const bool te : {true, false}) {
      const std::string name = te ? "use_te" : "fp8_backend";
      if (in_file(name) && chosen(file_.settings, te)) return filed(name);
    }
    return "";
  }

  // fp8_skip as it was given, likewise.
  std::string choice_of_layers() const {
    if (is_flag("fp8_skip"))
      return s_.fp8_skip.empty() ? "" : "--fp8_skip " + join(s_.fp8_skip, ",");
    const bool said = in_file("fp8_skip") && !file_.settings.fp8_skip.empty();
    if (!said || file_gives_everything() || !why_fp8_.empty()) return "";
    return "fp8_skip in " + file_.origin_of("fp8_skip").text();
  }

  std::string unused_choices() const {
    std::vector<std::string> unused;
    for (std::string& choice : std::vector{choice_of_kernels(), choice_of_layers()})
      if (!choice.empty()) unused.push_back(std::move(choice));
    if (unused.empty()) return "";
    return join(unused, " and ") + (unused.size() == 1 ? " is not used" : " are not used");
  }

  // Precision, recipe and kernels are one decision, explained in one line.
  void explain_fp8() {
    if (contradicted_) return;
    std::vector<std::string> parts;
    if (!why_fp8_.empty()) parts.push_back(why_fp8_);
    if (s_.use_fp8) {
      for (const std::string& why : {why_recipe_, why_backend_})
        if (!why.empty()) parts.push_back(why);
    } else if (const std::string unused = unused_choices(); !unused.empty()) {
      if (parts.empty())
        parts.push_back("FP8 off: " + (decided_by_.empty() ? "nothing asks for it (--use_fp8 does)"
                                                           : decided_by_));
      parts.push_back(unused);
    }
    if (!parts.empty()) note(kPrecisionReaders, join(parts, "; "));
  }

  // A verb that reads a run's checkpoints looks where the run saved them, whatever it computes in.
  void keep_checkpoint_dir(bool run_is_fp8) {
    constexpr Readers kReading =
        reader::kGenerate | reader::kEval | reader::kCheckpoints | reader::kDiagnose;
    const bool reads = (readers_ & kReading) && !(readers_ & reader::kConfig);
    if (!reads || parsed_.given("checkpoint_dir") || s_.use_fp8 == run_is_fp8) return;
    s_.checkpoint_dir = run_is_fp8 ? "checkpoints_fp8" : "checkpoints";
    parsed_.derived["checkpoint_dir"] = "of the run's own precision";
  }

  void set_fp8(bool on, const std::string& why) {
    const Settings before = s_;
    s_.use_fp8 = on;
    if (on) s_.mixed_precision = Precision::kFp8;
    if (!on && s_.mixed_precision == Precision::kFp8) s_.mixed_precision = Precision::kBf16;
    if (s_.use_fp8 != before.use_fp8) parsed_.derived["use_fp8"] = why;
    if (s_.mixed_precision != before.mixed_precision) parsed_.derived["mixed_precision"] = why;
  }

  // fp8_scenario mxfp8 is fp8_recipe mxfp8 by another name.
  void resolve_recipe() {
    if (s_.fp8_recipe == fp8_recipe_of(s_)) return;
    const bool flag_recipe = is_flag("fp8_recipe"), flag_scenario = is_flag("fp8_scenario");
    if (flag_recipe && flag_scenario) {
      contradict("one_recipe", flag("fp8_scenario"), flag("fp8_recipe"));
    } else if (flag_recipe) {
      why_recipe_ = str("fp8_recipe ", name_of(s_.fp8_recipe), ": ", flag("fp8_recipe"),
                        " overrides ", filed("fp8_scenario"));
      s_.fp8_scenario = Fp8Scenario::kNone;
      parsed_.derived["fp8_scenario"] = flag("fp8_recipe");
    } else if (flag_scenario && in_file("fp8_recipe")) {
      why_recipe_ = str("fp8_recipe ", name_of(fp8_recipe_of(s_)), ": ", flag("fp8_scenario"),
                        " overrides ", filed("fp8_recipe"));
      s_.fp8_recipe = fp8_recipe_of(s_);
      parsed_.derived["fp8_recipe"] = flag("fp8_scenario");
    } else if (in_file("fp8_recipe") && !file_gives_everything()) {
      contradict("one_recipe", filed("fp8_scenario"), filed("fp8_recipe"));
    }
  }

  // use_te is fp8_backend te by another name.
  void resolve_backend() {
    const bool differ =
        s_.use_te && s_.fp8_backend != Fp8Backend::kAuto && s_.fp8_backend != Fp8Backend::kTe;
    if (!differ || is_flag("fp8_backend") == is_flag("use_te")) return;
    const bool by_backend = is_flag("fp8_backend");
    const std::string above = by_backend ? "fp8_backend" : "use_te",
                      below = by_backend ? "use_te" : "fp8_backend";
    why_backend_ = str("fp8_backend ", by_backend ? name_of(s_.fp8_backend) : "te", ": ",
                       flag(above), " overrides ", filed(below));
    if (by_backend)
      s_.use_te = false;
    else
      s_.fp8_backend = Fp8Backend::kTe;
    parsed_.derived[below] = flag(above);
  }

  void resolve_length() {
    if (s_.max_steps == 0 || s_.num_epochs == 0) return;
    if (is_flag("max_steps") == is_flag("num_epochs")) return;  // rule one_length
    const std::string above = is_flag("max_steps") ? "max_steps" : "num_epochs",
                      below = is_flag("max_steps") ? "num_epochs" : "max_steps";
    note(kLengthReaders, "run length: " + flag(above) + " overrides " + filed(below));
    (is_flag("max_steps") ? s_.num_epochs : s_.max_steps) = 0;
    parsed_.derived[below] = flag(above);
  }

  // The file's warm-up is meant for the file's length. A run that flags make shorter has as much
  // less of it; where the file's length is in epochs, a warm-up beyond a tenth becomes a twentieth.
  void resolve_warmup() {
    if (!in_file("warmup_steps") || is_flag("warmup_steps") || s_.warmup_steps < 1) return;
    const Settings& f = file_.settings;
    double share = 0;  // of the file's warm-up
    std::string length, of;
    if (is_flag("max_steps") && s_.max_steps > 0) {
      const auto steps = static_cast<double>(s_.max_steps);
      const auto warmup = static_cast<double>(f.warmup_steps);
      share = f.max_steps > 0        ? steps / static_cast<double>(f.max_steps)
              : warmup <= steps / 10 ? 1
                                     : steps / 20 / warmup;
      length = str(s_.max_steps, " steps");
      if (f.max_steps > 0) of = str(" of ", f.max_steps);
    } else if (is_flag("num_epochs") && s_.num_epochs > 0 && f.num_epochs > 0) {
      share = static_cast<double>(s_.num_epochs) / static_cast<double>(f.num_epochs);
      length = str(s_.num_epochs, s_.num_epochs == 1 ? " epoch" : " epochs");
    }
    if (share <= 0 || share >= 1) return;
    s_.warmup_steps = std::max<int64_t>(
        1, static_cast<int64_t>(std::llround(share * static_cast<double>(f.warmup_steps))));
    const std::string why = str("scaled to the run's ", length, " from ", f.warmup_steps, of,
                                " in ", file_.origin_of("warmup_steps").text());
    note(kLengthReaders,
         str("warmup_steps ", s_.warmup_steps, ": ", why, "; --warmup_steps sets it"));
    parsed_.derived["warmup_steps"] = why;
  }

  void resolve_learning_rate() {
    if (parsed_.given("learning_rate")) return;
    const Task task = task_of(s_);
    s_.learning_rate = default_learning_rate(task);
    const std::string why = str("default for ", name_of(task));
    parsed_.derived["learning_rate"] = why;
    if (task == Task::kPretraining)
      return by_default(kLengthReaders, str("learning_rate ", print_number(s_.learning_rate), ": ",
                                            why, "; --learning_rate sets it"));
    note(kLengthReaders, str("learning_rate ", print_number(s_.learning_rate), ": ", why, " (",
                             print_number(default_learning_rate(Task::kPretraining)),
                             " is for random weights); --learning_rate sets it"));
  }

  // BF16 and FP8 runs reduce in BF16, as DeepSpeed and Accelerate's FSDP do (Megatron and
  // torchtitan reduce in FP32); what it does to the loss is in studies/results/grad_reduce.md.
  void resolve_reduction() {
    if (parsed_.given("grad_reduce_dtype") || s_.mixed_precision != Precision::kFp32) return;
    s_.grad_reduce_dtype = StateType::kFp32;
    parsed_.derived["grad_reduce_dtype"] = "mixed_precision fp32";
  }

  // Files of other trainers give the bound alone, and mean the largest batch that fits below it.
  void explain_batch() {
    if (!parsed_.given("max_batch_size") || parsed_.given("batch_size") ||
        parsed_.given("auto_batch_size") || s_.max_batch_size <= s_.batch_size)
      return;
    note(reader::kTrain, str("batch_size ", s_.batch_size, ": default; max_batch_size ",
                             s_.max_batch_size, " is a bound alone, --auto_batch_size takes the ",
                             "largest batch that fits below it"));
  }

  // As data/default_tokenizer.h finds it when the run begins, which then says it.
  void explain_tokenizer() {
    if (!s_.tokenizer.empty() || s_.dataset.empty()) return;
    std::error_code error;
    const bool prepared =
        s_.dataset.size() == 1 && fs::exists(fs::path(s_.dataset.front()) / "dataset.json", error);
    const std::string what = prepared                    ? "that of the prepared data"
                             : s_.model_name == "custom" ? "bytes, since model_name custom has none"
                                                         : "that of " + s_.model_name;
    parsed_.derived["tokenizer"] = what;
    by_default(reader::kConfig, "tokenizer: " + what + "; --tokenizer names another");
  }

  Parsed& parsed_;
  const Parsed& file_;
  Readers readers_;
  Settings& s_;
  bool contradicted_ = false;
  std::string decided_by_;                          // about FP8; "": nothing said anything
  std::string why_fp8_, why_recipe_, why_backend_;  // parts of one note
};

}  // namespace

void resolve(Parsed& parsed, const Parsed& file, Readers readers) {
  resolve_names(parsed, readers);
  Resolver(parsed, file, readers).run();
}

}  // namespace octavo::config
