// Package show presents a run to people and to programs.
//
//	display.go  the live block, plain lines or JSON lines during the run; messages
//	queue.go    output that is not read yet
//	view.go     one state of the run, in each of these forms
//	status.go   the answer to SIGUSR1
//	summary.go  the end of the run; tally.go has the sums over its samples
//	observer.go passes each event to the display, log, metrics, spans and tally
//	log.go      the events as JSON lines
//	metrics.go  the events for Prometheus
//	tracing.go  the events as spans
//	row.go      one row or one failure, token by token
//
// # To add an aggregate to the summary
//
// An aggregate of the samples is a field of sums (tally.go) and a line in text (summary.go). A
// number that the collector counts is a field of [collector.Stats] or [collector.Yield]. It needs a
// field of [Summary], a line in [Summarize], and a line in text. A metric has a panel in
// configs/grafana-dashboard.json. It is counted in metrics.go, which observer.go calls for each
// event, or read in metrics_stats.go on each scrape. The package comment of collector explains
// which kind of aggregate to choose, and lists the places that a new metric changes.
package show
