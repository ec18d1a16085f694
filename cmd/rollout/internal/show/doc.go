// Package show is what people and machines see of a run.
//
//	display.go  the live block, plain lines or JSON lines while it goes on; lines of talk
//	view.go     one state of the run, in each of these forms
//	status.go   the answer to SIGUSR1
//	summary.go  how it ended; tally.go sums up its samples, and says how to add a sum
//	observer.go what is told to whom when something happens
//	log.go      what it did, as JSON lines
//	metrics.go  the same for Prometheus
//	tracing.go  the same as spans
//	row.go      one row or one failure, token by token
//
// # To add an aggregate to the summary
//
// What the samples themselves show is one type, with add and text, and an entry in sums
// (tally.go). What the collector counts is a field of collector.Stats or collector.Yield, and
// here a field of Summary, its line in Summarize, and its line in text (summary.go). A metric
// of either is a line in metrics.go, where something happens, or in metrics_stats.go, where
// it is read when metrics are scraped.
package show
