#pragma once
// How wandb itself would start here: WANDB_MODE, and the key from WANDB_API_KEY or from the netrc
// file that `wandb login` writes. The key is looked for, never kept and never printed.

#include <optional>
#include <string>
#include <string_view>

namespace octavo::monitor {

enum class WandbMode { kOnline, kOffline, kDisabled };

// Of the variable's value, in wandb's spellings; "" is online, nullopt is a value wandb refuses.
std::optional<WandbMode> wandb_mode_named(std::string_view value);
// Of this process's environment; a value that wandb refuses is said and keeps the run offline.
WandbMode wandb_mode();

// The password of `machine` in the text of a netrc file, or "". A `default` entry is no key.
std::string netrc_password(std::string_view text, std::string_view machine);

// The machine of an address as wandb writes it into the netrc file: host, and port when it has one.
std::string netrc_machine(std::string_view address);

// Where the uploader will find its key: "WANDB_API_KEY", the netrc file's path, or "".
std::string wandb_key_place();

}  // namespace octavo::monitor
