"""Hugging Face datasets reads Parquet shards and Arrow streams."""

import os

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"

import datasets  # noqa: E402

import expect  # noqa: E402

FEATURES = {
    "input_ids": datasets.List(datasets.Value("int32")),
    "loss_mask": datasets.List(datasets.Value("int8")),
    "logprobs": datasets.List(datasets.Value("float32")),
    "versions": datasets.List(datasets.Value("int32")),
    "turn_roles": datasets.List(datasets.Value("int8")),
    "finish_reasons": datasets.List(datasets.Value("string")),
    "reward": datasets.Value("float64"),
    "temperature": datasets.Value("float32"),
    "top_k": datasets.Value("int32"),
    "started_at": datasets.Value("timestamp[us, tz=UTC]"),
    "truncated": datasets.Value("bool"),
}


def main(job):
    cache = os.environ["HF_HOME"]
    datasets.disable_progress_bars()
    for want in job["sets"]:
        read = []
        for file in want["files"]:
            if file["format"] == "arrow":
                read.append(datasets.Dataset.from_file(file["path"]))
                continue
            read.append(datasets.load_dataset("parquet", data_files=[file["path"]], split="train", cache_dir=cache))
            read.append(datasets.Dataset.from_parquet(file["path"], cache_dir=cache))
        for ds in read:
            assert ds.features == read[0].features
            expect.check_table(ds.with_format("arrow")[:], want, want["kind"])
            if want["kind"] == "data":
                for name, feature in FEATURES.items():
                    assert ds.features[name] == feature, (name, ds.features[name])
                small = ds.filter(lambda t: t < 3000, input_columns="prompt_length").remove_columns("started_at")
                assert len(small) > 5
                values = want["values"]
                index = {(k, s): i for i, (k, s) in enumerate(zip(values["sample_key"], values["segment_index"]))}
                for row in small.select(range(min(len(small), 20))):
                    i = index[row["sample_key"], row["segment_index"]]
                    for name, got in row.items():
                        expect.check_value(name, got, values[name][i], want["kinds"][name])
        assert len(datasets.concatenate_datasets(read)) == want["rows"] * len(read)
