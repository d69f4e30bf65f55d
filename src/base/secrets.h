#pragma once
// Secrets (tokens, keys, passwords) come in the environment, in files and in addresses, and stay
// there: what is said is searched for them, and a core file has none.

#include <string>
#include <string_view>

namespace octavo {

// HF_TOKEN, WANDB_API_KEY, aws_secret_access_key, …: by the words of a variable's or field's name.
bool is_secret_name(std::string_view name);

// Whether a text has an address with a password (https://user:password@host) or with a parameter
// that is a secret (?token=…).
bool has_secret_address(std::string_view text);

// The text with *** in the place of the secrets of such addresses, of this process's environment
// and of those that were added.
std::string without_secrets(std::string_view text);

// One that was read from a file: never to be said, and not in a core file.
void add_secret(const std::string& value);

// Core files of this process and its children are off from now on; those that a program takes from
// the kernel all the same (core_pattern with a pipe) have no memory in them. OCTAVO_CORE_DUMPS=1
// leaves both as they are.
void keep_secrets_out_of_cores();
// The same when the environment has a secret.
void protect_environment();

}  // namespace octavo
