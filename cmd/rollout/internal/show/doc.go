// Package show presents a run to people and to machines.
//
//	display.go  the live block, plain lines or JSON lines while it collects; messages
//	queue.go    what is shown and not read yet
//	view.go     one state of the run, in each of these forms
//	status.go   the answer to SIGUSR1
//	summary.go  how it ended; tally.go sums up its samples, and says how to add a sum
//	observer.go passes each event to all of them
//	log.go      what it did, as JSON lines
//	metrics.go  the same for Prometheus
//	tracing.go  the same as spans
//	row.go      one row or one failure, token by token
//
// # To add an aggregate to the summary
//
// An aggregate of the samples is one type, with the methods add and text, and an entry in
// sums (tally.go). A number that the collector counts is a field of [collector.Stats] or
// [collector.Yield]. It needs a field of [Summary], a line in [Summarize], and a line in text
// (summary.go). A metric is counted in metrics.go, which observer.go calls when something
// happens, or read in metrics_stats.go when metrics are scraped; and it has a panel in
// configs/grafana-dashboard.json. The package comment of collector says which kind of
// aggregate to choose, and lists the places of a metric.
package show
