// Package rowjson writes the content of a run as JSON Lines and reads it back bit for bit.
//
// A line is one data row, one failure, or one sample with neither. It is an object with one
// member per column, in column order, with the column names.
//
//	column                JSON
//	──────────────────────────────────────────────────────────────────────────────────────
//	integers              a number without fraction and exponent
//	float32, float64      the shortest number that parses as the same float; -0.0
//	NaN, infinities       "NaN", "Infinity", "-Infinity", as in the JSON mapping of Protocol
//	                      Buffers; a NaN of other bits than 7fc00000 or 7ff8000000000000 is
//	                      "NaN:" and its bits in hexadecimal
//	started_at            microseconds since 1970, UTC
//	texts                 a string; a column that stores JSON is a string of JSON
//	lists                 an array
//	null                  null
//
// A sample without rows and failures only has sample_key, attempt, group_id, group_size and
// sample_index.
//
// The export of a whole run begins with a header line: the shards' metadata, and the numbers of
// rows, failures and samples that follow. The numbers reveal a truncated file.
//
// Reading is strict: a line is UTF-8 JSON, has every column once and nothing else. Messages name
// the column.
package rowjson
