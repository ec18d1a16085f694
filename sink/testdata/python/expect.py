"""Compare what a reader returns with what was written, value for value."""

import base64

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

KEYS = {"data": [("sample_key", "ascending"), ("segment_index", "ascending")],
        "failures": [("sample_key", "ascending")]}


def bits(values, dtype):
    """Return the bits of floats, with all NaNs equal."""
    a = np.asarray(values, dtype=dtype).copy()
    a[np.isnan(a)] = np.nan
    return a.view(np.uint32 if dtype == np.float32 else np.uint64)


def from_bits(values, kind):
    u, f = (np.uint32, np.float32) if kind == "float32" else (np.uint64, np.float64)
    return bits(np.asarray(values, dtype=u).view(f), f)


def check_table(table, want, kind="data"):
    """table is a pyarrow table with all columns and rows in any order."""
    names, n = want["columns"], want["rows"]
    assert table.column_names == names, (table.column_names, names)
    assert table.num_rows == n, (table.num_rows, n)
    order = pc.sort_indices(table.select([k for k, _ in KEYS[kind]]), sort_keys=KEYS[kind])
    for name in names:
        # By column, because taking whole tables of lists can overflow their offsets.
        column = table.column(name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
        check_column(name, column.take(order), want["kinds"][name], want["values"][name])


def check_column(name, column, kind, values):
    null = [v is None for v in values]
    assert column.is_null().to_pylist() == null, f"{name}: other values are null"
    if kind == "[]uint8":
        assert column.type in (pa.binary(), pa.large_binary()), (name, column.type)
        got = [None if v is None else base64.b64encode(v).decode() for v in column.to_pylist()]
        assert got == values, f"{name}: bytes differ"
    elif kind.startswith("[]"):
        elem = kind[2:]
        lengths = pc.list_value_length(column).to_pylist()
        assert lengths == [None if v is None else len(v) for v in values], f"{name}: other lengths"
        flat = [x for v in values if v is not None for x in v]
        check_flat(name, column.flatten(), elem, flat)
    else:
        check_flat(name, column.drop_null(), kind, [v for v in values if v is not None])


def check_flat(name, column, kind, values):
    assert column.null_count == 0, f"{name}: null elements"
    if kind in ("float32", "float64"):
        dtype = np.float32 if kind == "float32" else np.float64
        assert column.type == (pa.float32() if kind == "float32" else pa.float64()), (name, column.type)
        got, want = bits(column.to_numpy(zero_copy_only=False), dtype), from_bits(values, kind)
        assert np.array_equal(got, want), f"{name}: floats differ"
    elif kind == "timestamp":
        assert column.type.unit == "us" and column.type.tz, (name, column.type)
        assert column.cast(pa.int64()).to_pylist() == values, f"{name}: times differ"
    elif kind.startswith("int"):
        got = column.to_numpy(zero_copy_only=False)
        assert np.array_equal(got, np.asarray(values, dtype=got.dtype if len(values) == 0 else np.int64)), f"{name}: numbers differ"
        assert str(column.type) == kind, (name, column.type)
    else:
        assert column.to_pylist() == values, f"{name}: differs"


def check_python(rows, want, kind="data"):
    """rows are dicts of plain Python or numpy values, in any order."""
    index = {}
    for i in range(want["rows"]):
        index[tuple(want["values"][k][i] for k, _ in KEYS[kind])] = i
    n = 0
    for row in rows:
        i = index.pop(tuple(row[k] for k, _ in KEYS[kind]))
        n += 1
        for name, got in row.items():
            value, k = want["values"][name][i], want["kinds"][name]
            check_value(name, got, value, k)
    assert not index, f"{len(index)} rows are missing"
    return n


def check_value(name, got, value, kind):
    if value is None or got is None:
        assert got is None and value is None, f"{name}: {got!r}, want {value!r}"
        return
    if kind == "[]uint8":
        assert base64.b64encode(got).decode() == value, f"{name}: bytes differ"
    elif kind.startswith("[]"):
        elem = kind[2:]
        assert len(got) == len(value), f"{name}: length {len(got)}, want {len(value)}"
        if elem in ("float32", "float64"):
            dtype = np.float32 if elem == "float32" else np.float64
            assert np.array_equal(bits(got, dtype), from_bits(value, elem)), f"{name}: floats differ"
        else:
            assert list(map(_plain, got)) == value, f"{name}: differs"
    elif kind in ("float32", "float64"):
        dtype = np.float32 if kind == "float32" else np.float64
        assert np.array_equal(bits([got], dtype), from_bits([value], kind)), f"{name}: {got!r}"
    elif kind != "timestamp":  # datetime has no year 0 to compare with everywhere
        assert got == value, f"{name}: {got!r}, want {value!r}"


def _plain(x):
    return x.item() if hasattr(x, "item") else x
