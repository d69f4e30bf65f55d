#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 night=""
"""TensorBoard's own reader reads back every value of a 3,000-step run that was killed and resumed, bit for bit: scalars (as
the FP32 numbers that TensorBoard keeps), histograms of FP8 scales and magnitudes, samples as text."""
import math
import struct

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import sinks_run


def bits(value):
    return struct.pack("<f", value)


def check(run):
    reader = EventAccumulator(str(run / "tensorboard"), size_guidance=dict.fromkeys(
        ("scalars", "histograms", "compressedHistograms", "tensors"), 0))
    reader.Reload()
    tags = reader.Tags()

    scalars, twice = {}, 0
    for name in tags["scalars"]:
        for event in reader.Scalars(name):
            twice += (event.step, name) in scalars
            scalars[event.step, name] = event.value
    wanted = sinks_run.values(run)
    wrong = sinks_run.differences(scalars, wanted, lambda a, b: bits(a) == bits(b))

    histograms = 0
    for step, rows in sinks_run.tensors(run).items():
        for name, numbers in sinks_run.groups(rows).items():
            found = [e.histogram_value for e in reader.Histograms(name) if e.step == step]
            if len(found) != 1:
                wrong.append(f"{name} at step {step}: {len(found)} histograms, wanted 1")
                continue
            h, histograms = found[0], histograms + 1
            edges = [0 if h.min == 0 else 2.0 ** math.floor(math.log2(h.min)), *h.bucket_limit]
            if ((h.min, h.max, h.num) != (min(numbers), max(numbers), len(numbers))
                    or not math.isclose(h.sum, sum(numbers), rel_tol=1e-12)
                    or list(h.bucket) != sinks_run.octave_counts(numbers, edges)):
                wrong.append(f"{name} at step {step}: {h}")

    texts = {e.step: e.tensor_proto.string_val[0].decode() for e in reader.Tensors("samples")}
    wanted_texts = {step: "    " + text.replace("\n", "\n    ") for step, text in sinks_run.samples(run).items()}
    if texts != wanted_texts or not texts:
        wrong.append(f"samples: {texts}, wanted {wanted_texts}")
    if reader.summary_metadata["samples"].plugin_data.plugin_name != "text":
        wrong.append("samples are not the text plugin's")

    for line in wrong[:20]:
        print(line)
    good = not wrong and twice == 0 and histograms > 0
    print(f"steps={sinks_run.STEPS} scalars={len(scalars)} of={len(wanted)} twice={twice} histograms={histograms} "
          f"samples={len(texts)} wrong={len(wrong)} {'ok' if good else 'FAILED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sinks_run.in_a_scratch_folder(check)
