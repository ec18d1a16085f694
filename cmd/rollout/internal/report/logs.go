package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Limits on the lines and values that a report keeps from the logs.
const (
	maxLogLine  = 64 << 10 // the lines that a report uses are shorter
	maxChanges  = 1000
	maxInFlight = 480
)

// A logLine is a line of a file in logs/, with the fields that a report reads.
type logLine struct {
	Time time.Time `json:"time"`
	Msg  string    `json:"msg"`

	Resumed   bool `json:"resumed"`   // set in lines with the message "launch"
	Unstarted int  `json:"unstarted"` // set in lines with the message "tail"
	InFlight  int  `json:"in_flight"` // set in lines with the message "status"
	// Lag counts, by policy lag, the groups that have become whole in this process so far. It is
	// nil if the run does not commit whole groups.
	Lag       []int `json:"lag"`
	ExitCode  *int  `json:"exit"` // set in lines with the message "end"
	Duplicate *int  `json:"duplicates_refused"`

	Outcome  string  `json:"outcome"`
	Endpoint string  `json:"endpoint"` // set in lines with the message "limit changed"
	From     int     `json:"from"`
	To       int     `json:"to"`
	Reason   string  `json:"reason"`
	Class    string  `json:"class"` // set in lines with the message "retry"
	Delay    float64 `json:"delay_s"`
}

type diary struct {
	report    *Report
	endpoints map[string]*EndpointLimit
	order     []string
	every     int // one of this many status lines is kept
	statuses  int
	clock     clock
	lag       []int // lags in the last status line of the log that is being read
	unstarted int
	retries   int
	waited    float64 // before retries, in seconds
}

func readInvocations(dir string, r *Report) {
	d := &diary{report: r, endpoints: map[string]*EndpointLimit{}, every: 1}
	logs := filepath.Join(dir, "logs")
	files, err := os.ReadDir(logs) // sorted by name
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.Problems = append(r.Problems, fmt.Sprintf("the logs could not be read: %v", err))
	}
	for _, f := range files {
		if name := f.Name(); !strings.HasPrefix(name, "collect-") || !strings.HasSuffix(name, ".jsonl") {
			continue
		}
		if err := d.file(filepath.Join(logs, f.Name())); err != nil {
			r.Problems = append(r.Problems, fmt.Sprintf("a log could not be read completely: %v", err))
		}
	}
	if r.ClockJumps = d.clock.jumps; len(r.Invocations) > 0 {
		r.Coverage.Unstarted, r.Retries.Logged, r.Retries.WaitSeconds = &d.unstarted, &d.retries, &d.waited
	}
	for _, name := range d.order {
		r.Controller.Endpoints = append(r.Controller.Endpoints, *d.endpoints[name])
	}
}

func (d *diary) file(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read only
	in := Invocation{Log: filepath.Base(name)}
	d.lag = nil
	defer func() { d.lags(&in) }()
	b := bufio.NewReaderSize(f, maxLogLine)
	for {
		text, err := b.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) {
			text = nil
			_, err = b.ReadSlice('\n')
		}
		if err != nil { // the last line is incomplete
			if in.Log != "" && !in.Started.IsZero() {
				d.report.Invocations = append(d.report.Invocations, in)
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var l logLine
		if json.Unmarshal(text, &l) != nil || l.Time.IsZero() {
			continue
		}
		at := l.Time.UTC()
		if in.Started.IsZero() {
			in.Started = at
		}
		in.Seconds += d.clock.passed(in.Log, &l, at)
		in.Ended = at
		d.line(&l, &in)
	}
}

func (d *diary) line(l *logLine, in *Invocation) {
	r := d.report
	switch l.Msg {
	case "launch":
		in.Resumed = l.Resumed
		d.unstarted = 0 // a resumed run collects the samples that were skipped before
	case "tail":
		d.unstarted = l.Unstarted
	case "end":
		in.Outcome, in.Exit = l.Outcome, l.ExitCode
		if l.Duplicate != nil {
			n := int64(*l.Duplicate)
			if r.Storage.Duplicates != nil {
				n += *r.Storage.Duplicates
			}
			r.Storage.Duplicates = &n
		}
	case "status":
		d.status(Point{At: l.Time.UTC(), Value: float64(l.InFlight)})
		if l.Lag != nil {
			d.lag = l.Lag
		}
	case "limit changed":
		d.changed(LimitChange{At: l.Time.UTC(), Endpoint: l.Endpoint, From: l.From, To: l.To, Reason: l.Reason})
	case "retry":
		if r.Retries.ByClass == nil {
			r.Retries.ByClass = map[string]int{}
		}
		r.Retries.ByClass[l.Class]++
		d.retries++
		d.waited += l.Delay
	}
}

// lags adds the lags of the process whose log has been read.
func (d *diary) lags(in *Invocation) {
	if d.lag == nil {
		return
	}
	if d.report.Lag == nil {
		d.report.Lag = &Lag{}
	}
	d.report.Lag.add(d.lag)
	if in.Outcome == "" {
		d.report.Lag.CutShort++
	}
}

// status adds a point. To limit the number of points, it keeps only one of every d.every points.
func (d *diary) status(p Point) {
	d.statuses++
	if (d.statuses-1)%d.every != 0 {
		return
	}
	points := append(d.report.Controller.InFlight, p)
	if len(points) > maxInFlight {
		kept := points[:0]
		for i := 0; i < len(points); i += 2 {
			kept = append(kept, points[i])
		}
		points = kept
		d.every *= 2
	}
	d.report.Controller.InFlight = points
}

func (d *diary) changed(c LimitChange) {
	k := &d.report.Controller
	e := d.endpoints[c.Endpoint]
	if e == nil {
		e = &EndpointLimit{Endpoint: c.Endpoint, Min: c.To, Max: c.To}
		d.endpoints[c.Endpoint] = e
		d.order = append(d.order, c.Endpoint)
	}
	e.Min, e.Max, e.Last = min(e.Min, c.To), max(e.Max, c.To), c.To
	if c.From != 0 { // 0 marks the initial limit
		e.Changes++
		if c.To < c.From {
			e.Cuts++
		}
		if k.Reasons == nil {
			k.Reasons = map[string]int{}
		}
		k.Reasons[c.Reason]++
	}
	if len(k.Changes) == maxChanges {
		k.Changes = append(k.Changes[:0], k.Changes[1:]...)
		k.LeftOut++
	}
	k.Changes = append(k.Changes, c)
}
