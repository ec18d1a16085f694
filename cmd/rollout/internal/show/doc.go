// Package show presents a run to people and to programs.
//
//	display.go  the live block, plain lines or JSON lines during the run; messages
//	queue.go    output that has not yet been read
//	view.go     one state of the run, in each of these forms
//	status.go   the status that is printed on SIGUSR1
//	summary.go  the summary at the end of the run; tally.go sums over its samples
//	observer.go passes each event to the display, log, metrics, spans and tally
//	log.go      the events as JSON lines
//	metrics.go  the events as Prometheus metrics
//	tracing.go  the events as spans
//	row.go      one row or one failure, token by token
//
// # Adding an aggregate to the summary
//
// An aggregate of the samples needs a field in sums (tally.go) and a line in Summary.text
// (summary.go). A number that the collector counts needs a field in [collector.Stats] or
// [collector.Yield], a field in [Summary], an assignment in [Summarize], and a line in
// Summary.text. A metric needs a panel in configs/grafana-dashboard.json. A metric that counts
// events belongs in metrics.go. A metric that is read on each scrape belongs in metrics_stats.go.
// The package comment of collector explains which kind of aggregate to choose, and lists what else
// must change for a new metric.
package show
