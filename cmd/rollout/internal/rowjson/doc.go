// Package rowjson writes the content of a run as JSON Lines and reads it back bit for bit.
//
// A line contains one data row, one failure, or one sample that has neither. It is an object with
// one member per column. The members have the names and the order of the columns.
//
//	column                JSON
//	──────────────────────────────────────────────────────────────────────────────────────
//	integers              a number without fraction and exponent
//	float32, float64      the shortest number that parses to the same float; -0.0
//	NaN, infinities       "NaN", "Infinity", "-Infinity", as in the JSON mapping of Protocol
//	                      Buffers; a NaN with bits other than 7fc00000 or 7ff8000000000000 is
//	                      "NaN:" followed by its bits in hexadecimal
//	started_at            microseconds since 1970, UTC
//	strings               a string; a column that contains JSON is a string of JSON
//	lists                 an array
//	routed_experts        base64 of the bytes
//	null                  null
//
// The line for a sample without rows and failures has only sample_key, attempt, group_id,
// group_size and sample_index.
//
// The export of a whole run begins with a header line. It contains the shards' metadata and the
// numbers of rows, failures and samples that follow. These numbers reveal a truncated file.
//
// The Reader is strict. A line must be valid JSON in UTF-8 and must contain every column once and
// nothing else. Error messages name the column.
package rowjson
