#pragma once
// The numbers of TensorBoard's and W&B's files, for who writes them (tensorboard.cpp, wandb.cpp)
// and who reads them (src/foreign_logs).

#include <cstdint>
#include <string_view>

namespace octavo::monitor {

// Field numbers of tensorboard/compat/proto: event.proto, summary.proto, tensor.proto.
namespace event {
inline constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace value {  // of a summary, whose field 1 they are
inline constexpr int kTag = 1, kSimpleValue = 2, kHistogram = 5, kTensor = 8, kMetadata = 9;
}
namespace tensor {
inline constexpr int kType = 1, kShape = 2, kContent = 4, kFloats = 5, kDoubles = 6, kStrings = 8;
inline constexpr int kFloatType = 1, kDoubleType = 2, kStringType = 7;
}  // namespace tensor
namespace session {
inline constexpr int kStatus = 1, kStart = 1;  // SessionLog.status, SessionLog.START
}
inline constexpr int kSummaryValue = 1;

// Field numbers of wandb/proto/wandb_internal.proto.
namespace wandb_record {
inline constexpr int kNumber = 1, kHistory = 2, kSummary = 3, kRun = 17, kExit = 18, kHeader = 21;
}
namespace wandb_history {
inline constexpr int kItem = 1, kStep = 2, kStepNumber = 1;
}
namespace wandb_item {
inline constexpr int kKey = 1, kNestedKey = 2, kValueJson = 16;
}

// W&B's file is LevelDB's log: pieces that do not cross a block, each with its CRC-32, the length
// of its bytes (16 bits) and its kind.
namespace wandb_frame {
inline constexpr uint64_t kBlock = 32768, kPieceHeader = 7;
inline constexpr std::string_view kFileHeader{":W&B\xE1\xBE\0", 7};  // name, 0xBEE1, version 0
enum Piece : char { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };
}  // namespace wandb_frame

}  // namespace octavo::monitor
