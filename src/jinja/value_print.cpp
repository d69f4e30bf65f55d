// str() and repr() of Python's values.
#include "jinja/python_text.h"
#include "jinja/value.h"

namespace octavo::jinja {
namespace {

constexpr int kMostPrinted = 200;  // a namespace may hold itself

class Printer {
 public:
  explicit Printer(Budget& budget) : budget_(budget) {}
  std::string take() { return std::move(out_); }

  void print(const Value& value) {
    if (++depth_ > kMostPrinted) refuse("wanted values that end, found one that holds itself");
    budget_.make(16);
    switch (value.kind()) {
      case Kind::kMissing:
      case Kind::kUndefined:
        out_ += "Undefined";
        break;
      case Kind::kNone:
        out_ += "None";
        break;
      case Kind::kBool:
        out_ += value.as_bool() ? "True" : "False";
        break;
      case Kind::kInt:
        out_ += std::to_string(value.as_int());
        break;
      case Kind::kFloat:
        out_ += float_text(value.as_float());
        break;
      case Kind::kString:
        budget_.make(value.as_text().size() * 2);
        out_ += value.is_markup() ? "Markup(" + repr_text(value.as_text()) + ")"
                                  : repr_text(value.as_text());
        break;
      case Kind::kRange:
        range(value.as<SequenceObject>());
        break;
      case Kind::kCallable:
        callable(value);
        break;
      default:
        container(value);
    }
    --depth_;
  }

 private:
  void items(const std::vector<Value>& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += ", ";
      print(items[i]);
    }
  }
  void range(const SequenceObject& range) {
    out_ += "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
    if (range.step != 1) out_ += ", " + std::to_string(range.step);
    out_ += ")";
  }
  void dict(const DictObject& dict) {
    out_ += "{";
    bool first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!first) out_ += ", ";
      first = false;
      print(key);
      out_ += ": ";
      print(value);
    }
    out_ += "}";
  }
  void view(const ViewObject& view) {
    constexpr const char* kNames[] = {"dict_items([", "dict_keys([", "dict_values(["};
    out_ += kNames[static_cast<int>(view.what)];
    bool first = true;
    for (const auto& [key, value] : view.dict->entries()) {
      if (!first) out_ += ", ";
      first = false;
      if (view.what == ViewObject::What::kItems) out_ += "(";
      if (view.what != ViewObject::What::kValues) print(key);
      if (view.what == ViewObject::What::kItems) out_ += ", ";
      if (view.what != ViewObject::What::kKeys) print(value);
      if (view.what == ViewObject::What::kItems) out_ += ")";
    }
    out_ += "])";
  }
  void callable(const Value& value) {
    const std::string description = value.as<CallableObject>().description();
    if (description.empty()) refuse("wanted a value to print, found a function");
    out_ += description;
  }
  void container(const Value& value) {
    switch (value.kind()) {
      case Kind::kList:
        out_ += "[";
        items(value.items());
        out_ += "]";
        break;
      case Kind::kTuple:
        out_ += "(";
        items(value.items());
        out_ += value.items().size() == 1 ? ",)" : ")";
        break;
      case Kind::kDict:
        dict(value.as<DictObject>());
        break;
      case Kind::kView:
        view(value.as<ViewObject>());
        break;
      case Kind::kNamespace:
        out_ += "<Namespace ";
        dict(value.as<NamespaceObject>().attributes);
        out_ += ">";
        break;
      default:  // Python would print an address
        refuse("wanted a value to print, found ", type_name(value), "; |list makes one of it");
    }
  }

  Budget& budget_;
  std::string out_;
  int depth_ = 0;
};

}  // namespace

std::string repr(Budget& budget, const Value& value) {
  Printer printer(budget);
  printer.print(value);
  return printer.take();
}

std::string to_text(Budget& budget, const Value& value) {
  if (value.is_text()) {
    budget.make(value.as_text().size());
    return value.as_text();
  }
  return value.is(Kind::kUndefined) ? "" : repr(budget, value);
}

}  // namespace octavo::jinja
