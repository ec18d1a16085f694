package rowjson

import (
	"slices"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// factColumns are the columns of a row that have no entry per token.
var factColumns = slices.DeleteFunc(slices.Clone(rowColumns), func(c column) bool {
	return slices.Contains([]string{"input_ids", "loss_mask", "logprobs", "versions"}, c.name)
})

// AppendFacts appends a JSON object with all columns of the row except those with one entry per token:
// input_ids, loss_mask, logprobs and versions. Their values are as in a line.
func AppendFacts(b []byte, r *sink.StoredRow) []byte { return appendColumns(b, factColumns, r) }

// DecodeFacts decodes an object that AppendFacts wrote. It leaves the other columns of the row unchanged.
func DecodeFacts(text string, r *sink.StoredRow) error {
	return decodeRow(text, "row", factColumns, r)
}

// DecodeList decodes an array of numbers, as strictly as in a line.
func DecodeList[T int8 | int32 | float32](text string, list *[]T) error {
	s := &scanner{strictjson.New(text, strictjson.Options{}), text}
	decodeValue(s, list, false)
	return s.End()
}

// AppendText appends valid UTF-8 text as a JSON string.
func AppendText(b []byte, text string) []byte { return appendText(b, text) }

// AppendIDs appends an array of integers.
func AppendIDs(b []byte, ids []int32) []byte { return appendValue(b, &ids, false) }

// AppendFloats appends an array of floats that round-trip exactly.
func AppendFloats(b []byte, values []float32) []byte { return appendValue(b, &values, false) }
