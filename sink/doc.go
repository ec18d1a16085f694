// Package sink makes finished samples durable: rows go into Parquet or Arrow
// shards, failures into shards of their own, and a commit log says which of them
// exist.
package sink
