#pragma once
// Text for a terminal: printf into a string, and tables whose columns stand below each other.

#include <string>
#include <string_view>
#include <vector>

namespace octavo {

__attribute__((format(printf, 1, 2))) std::string printed(const char* format, ...);

// Of text in UTF-8 without wide or combining characters: following bytes take none.
size_t columns_of(std::string_view text);

// Rows indented by two, columns as wide as their widest cell and two apart.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

}  // namespace octavo
