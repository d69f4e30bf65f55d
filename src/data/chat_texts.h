#pragma once
// What the chat templates write of their own.

#include <string_view>

namespace octavo::data {

inline constexpr std::string_view kQwenSystem =
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
inline constexpr std::string_view kSmolSystem =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
// Llama-3.1's own template writes a date; this is the one it falls back to.
inline constexpr std::string_view kLlama31System =
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
inline constexpr std::string_view kAlpaca =
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.\n\n";
inline constexpr std::string_view kAlpacaWithInput =
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.\n\n";

}  // namespace octavo::data
