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
package show
