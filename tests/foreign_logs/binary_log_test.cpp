#include <gtest/gtest.h>

#include <cmath>

#include "expect_failure.h"
#include "foreign_logs/log_file.h"
#include "foreign_logs/protobuf.h"
#include "monitor/wandb.h"
#include "monitor/wire.h"

namespace octavo::foreign_logs {
namespace {

using monitor::Message;

class BinaryLogTest : public LogTest {};

std::string framed_event(const Message& message) {
  std::string out;
  monitor::append_little_endian(out, static_cast<uint64_t>(message.bytes().size()));
  monitor::append_little_endian(out, monitor::masked_crc32c(out));
  out += message.bytes();
  monitor::append_little_endian(out, monitor::masked_crc32c(message.bytes()));
  return out;
}

std::string scalar_event(int64_t step, const char* tag, float value, double wall = 100) {
  const Message one = Message().text(1, tag).short_real(2, value);
  return framed_event(
      Message().real(1, wall).number(2, step).message(5, Message().message(1, one)));
}

TEST_F(BinaryLogTest, EventsAndResumedSessions) {
  std::string bytes = framed_event(Message().real(1, 1.0).text(3, "brain.Event:2"));
  for (int step = 1; step <= 4; ++step)
    bytes += scalar_event(step, "train/loss", static_cast<float>(step), 100 + 2 * step);
  bytes += scalar_event(4, "eval/loss", 7);
  bytes += scalar_event(4, "lr", 7);
  // A session that begins at step 3 takes 3 and 4 back; tensors are scalars too.
  bytes += framed_event(Message().real(1, 200.0).number(2, 3).message(7, Message().number(1, 1)));
  const Message tensor = Message().number(1, 2).message(2, Message()).reals(6, {2.5});
  bytes += framed_event(Message().real(1, 210.0).number(2, 3).message(
      5, Message().message(1, Message().text(1, "train/loss").message(8, tensor))));
  const Log log = read(bytes);
  EXPECT_EQ(log.format, "TensorBoard event files");
  ASSERT_EQ(log.steps.size(), 3u);
  EXPECT_EQ(log.steps.at(2).loss, 2);
  EXPECT_EQ(log.steps.at(3).loss, 2.5);
  EXPECT_EQ(log.steps.at(2).seconds, 2);
  EXPECT_TRUE(log.evaluations.empty());
  EXPECT_TRUE(has_remark(log, "took them back"));
}

TEST_F(BinaryLogTest, TorchtitansTokens) {
  const Log log = read(scalar_event(10, "loss_metrics/global_avg_loss", 3) +
                       scalar_event(10, "n_tokens_seen", 81920));
  EXPECT_EQ(log.steps.at(10).tokens, 81920);
}

// Tokens and times are of all GPUs, tps of one.
TEST_F(BinaryLogTest, TorchtitansRateIsOfOneGpu) {
  const std::string rate = scalar_event(10, "loss_metrics/global_avg_loss", 3) +
                           scalar_event(10, "throughput(tps)", 1000);
  const std::string times = rate + scalar_event(10, "time_metrics/end_to_end(s)", 2);
  const Log alone = read(times);
  EXPECT_TRUE(alone.rate_of_one_gpu);
  EXPECT_EQ(alone.steps.at(10).tokens_per_second, 1000);
  EXPECT_TRUE(has_remark(alone, "of one GPU"));
  const Log counted = read(times + scalar_event(10, "n_tokens_seen", 160000));
  EXPECT_FALSE(counted.rate_of_one_gpu);
  EXPECT_EQ(counted.steps.at(10).tokens_per_second, 0);
  EXPECT_EQ(counted.steps.at(10).seconds, 2);
  EXPECT_EQ(counted.steps.at(10).tokens, 160000);
}

TEST_F(BinaryLogTest, DamagedAndCutEvents) {
  const std::string first = scalar_event(1, "loss", 1), second = scalar_event(2, "loss", NAN),
                    third = scalar_event(3, "loss", 3);
  const Log cut = read((first + second + third).substr(0, (first + second).size() + 9));
  EXPECT_EQ(cut.steps.size(), 2u);
  EXPECT_EQ(cut.lost_losses, 1);
  EXPECT_TRUE(has_remark(cut, "middle of an event"));
  std::string broken = first + second + third;
  broken[first.size() + 14] ^= 1;
  const Log damaged = read(broken);
  EXPECT_EQ(damaged.steps.size(), 1u);
  EXPECT_TRUE(has_remark(damaged, "damaged at byte"));
  // A length beyond the file, with a checksum that fits.
  std::string huge;
  monitor::append_little_endian(huge, uint64_t{1} << 27);
  monitor::append_little_endian(huge, monitor::masked_crc32c(huge));
  EXPECT_EQ(read(first + huge).steps.size(), 1u);
}

std::string wandb_file(const std::vector<Message>& histories, size_t padding = 0) {
  std::string out;
  int64_t number = 0;
  const std::string header = Message()
                                 .number(1, ++number)
                                 .message(21, Message().text(2, std::string(padding, 'x')))
                                 .bytes();
  out += monitor::wandb_log_bytes(header, 0);
  for (const Message& history : histories)
    out += monitor::wandb_log_bytes(Message().number(1, ++number).message(2, history).bytes(),
                                    out.size());
  return out;
}

Message history_row(const std::vector<std::pair<std::string, std::string>>& values, int64_t step,
                    bool nested = true) {
  Message row;
  for (const auto& [name, json] : values)
    row.message(1, Message().text(nested ? 2 : 1, name).text(16, json));
  return row.message(2, Message().number(1, step));
}

TEST_F(BinaryLogTest, WandbRowsOverBlocks) {
  const Log log = read(wandb_file(
      {history_row({{"train/loss", "4.25"}, {"train/global_step", "10"}, {"_timestamp", "50.5"}},
                   0),
       history_row({{"grad", "{\"_type\":\"histogram\"}"}, {"train/global_step", "10"}}, 1),
       history_row({{"train/loss", "NaN"}, {"train/global_step", "20"}, {"_timestamp", "70.5"}}, 2),
       history_row({{"eval/loss", "3.5"}, {"train/global_step", "20"}}, 3, /*nested=*/false),
       history_row({{"train/loss", "1.5"}}, 4)},
      40'000));
  EXPECT_EQ(log.format, "W&B offline files");
  ASSERT_EQ(log.steps.size(), 2u);
  EXPECT_EQ(log.steps.at(10).loss, 4.25);
  EXPECT_EQ(log.steps.at(20).seconds, 2);
  EXPECT_EQ(log.lost_losses, 1);
  EXPECT_EQ(log.evaluations.at(20), 3.5);
  EXPECT_TRUE(has_remark(log, "1 rows without a step"));
  EXPECT_EQ(read(wandb_file({history_row({{"loss", "2"}}, 7)})).steps.at(7).loss, 2);
}

TEST_F(BinaryLogTest, WandbDamageIsCounted) {
  const Message row = history_row({{"loss", "2"}}, 7), other = history_row({{"loss", "1"}}, 8);
  const std::string sound = wandb_file({row, other}, 40'000);
  std::string broken = sound;
  broken[100] ^= 1;  // in the first block; the rows are in the second
  const Log log = read(broken);
  EXPECT_EQ(log.steps.size(), 2u);
  EXPECT_EQ(log.bad_lines, 1);
  const Log cut = read(sound.substr(0, sound.size() - 3));
  EXPECT_EQ(cut.steps.size(), 1u);
  EXPECT_TRUE(has_remark(cut, "middle of a record"));
}

TEST(ProtobufTest, RefusesWhatDoesNotEnd) {
  for (const std::string& bytes :
       {std::string("\x08"), std::string("\x0a\x05xx"), std::string("\x09xxx"), std::string("\x0f"),
        std::string("\0", 1), std::string(11, '\xff'),
        std::string("\x08") + std::string(10, '\x80')}) {
    MessageReader reader(bytes);
    while (reader.next()) {
    }
    EXPECT_TRUE(reader.is_damaged());
  }
  MessageReader reader("\x08\x96\x01");
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.number(), 150u);
  EXPECT_FALSE(reader.next());
  EXPECT_FALSE(reader.is_damaged());
}

}  // namespace
}  // namespace octavo::foreign_logs
