// Package rowjson writes what a run holds as JSON Lines and reads it back, bit by bit.
//
// A line is one row of data, one failure, or one sample that has neither: an object with
// one member per column, in the order of the columns. Members have the names of the columns.
//
//	column                JSON
//	──────────────────────────────────────────────────────────────────────────────────────
//	integers              a number without fraction and exponent
//	float32, float64      the shortest number that is read back as the same float; -0.0
//	NaN, infinities       "NaN", "Infinity", "-Infinity", as in the JSON mapping of Protocol
//	                      Buffers; a NaN of other bits than 7fc00000 or 7ff8000000000000 is
//	                      "NaN:" and its bits in hexadecimal
//	started_at            microseconds since 1970, UTC
//	texts                 a string; columns that hold JSON are strings of JSON, as they are stored
//	lists                 an array
//	null                  null
//
// A sample without rows and failures has sample_key, attempt, group_id, group_size and
// sample_index alone; the last three are null where the run does not know them.
//
// The export of a whole run begins with a line of another kind, the header: what the shards
// say of the run, and how many rows, failures and samples follow. With it a file that was cut
// is found out.
//
// Reading is strict: JSON in UTF-8, each member once, every column there and no other. The
// columns that schema version 2 added may be missing. Messages name the column.
package rowjson
