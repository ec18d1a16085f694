package lettasim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Weights are those of a scripted engine that a trainer updates while agents are at work.
// Every call of a scripted agent is made with one version, which its trace names as
// SGLang's does (weight_version), and which the pages /model_info and /get_model_info tell:
// those of an engine, at the address of the simulator. The zero value is an engine that was
// never updated: its version is the word default.
type Weights struct {
	// Every is the time between two updates, Calls the number of calls. One of them.
	Every time.Duration
	Calls int
	// Engines is how many engines make the calls, which are updated one after the other,
	// within one period. Calls and requests for a page meet any of them. Default 1.
	Engines int
	// Lag is how much later than the weights the page changes; negative: earlier. It needs
	// Every.
	Lag time.Duration
	// Fall, if positive, lets the number begin again after so many versions.
	Fall int
	// Words makes page and traces say a word instead of the number.
	Words bool
	// Log, if not nil, gets the truth: a line of JSON for every call, with its step_id and
	// the number of its version.
	Log io.Writer
}

// ParseWeights reads Weights but for their log, such as
//
//	every=300ms    every=40,engines=2    every=2s,lag=100ms,fall=3    every=40,words
//
// where every is a time or a number of calls.
func ParseWeights(text string) (w Weights, err error) {
	for option := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "every":
			if w.Calls, err = strconv.Atoi(value); err != nil {
				w.Calls = 0
				w.Every, err = time.ParseDuration(value)
			}
		case "engines":
			w.Engines, err = strconv.Atoi(value)
		case "lag":
			w.Lag, err = time.ParseDuration(value)
		case "fall":
			w.Fall, err = strconv.Atoi(value)
		case "words":
			w.Words = true
		default:
			return w, fmt.Errorf("lettasim: weights %q: there are every, engines, lag, fall and words", option)
		}
		if err != nil {
			return w, fmt.Errorf("lettasim: weights: %s: %q is neither a time nor a number that it can be", name, value)
		}
	}
	if !w.changing() {
		return w, errors.New("lettasim: weights: every is missing: a time such as 300ms, or a number of calls")
	}
	return w, w.validate()
}

// changing says whether there are updates.
func (w *Weights) changing() bool { return w.Every > 0 || w.Calls > 0 }

func (w *Weights) validate() error {
	switch {
	case w.Every < 0 || w.Calls < 0 || w.Engines < 0 || w.Fall < 0:
		return errors.New("lettasim: weights: numbers and times but lag must be ≥ 0")
	case w.Every > 0 && w.Calls > 0:
		return errors.New("lettasim: weights: updates come after a time or after calls, not both")
	case w.Lag != 0 && w.Every == 0:
		return errors.New("lettasim: weights: a lag needs updates after a time")
	}
	return nil
}

// A trainer updates the weights.
type trainer struct {
	Weights
	began time.Time

	mu    sync.Mutex
	calls int // made so far
	asked int // requests for a page
}

// version is the number of engine e at a moment, after so many calls.
func (t *trainer) version(e int, at time.Time, calls int) int {
	engines := max(1, t.Engines)
	n := 0
	if t.Every > 0 {
		n = int((at.Sub(t.began) - time.Duration(e)*t.Every/time.Duration(engines)) / t.Every)
	} else if t.Calls > 0 {
		n = (calls - e*t.Calls/engines) / t.Calls
	}
	n = max(0, n)
	if t.Fall > 0 {
		n %= t.Fall
	}
	return 1 + n
}

// said is what an engine calls the version.
func (t *trainer) said(version int) string {
	if !t.changing() {
		return "default"
	}
	if t.Words {
		return "default" // as where the trainer gives its weights no name
	}
	return strconv.Itoa(version)
}

// assign decides the versions of the calls of a run, and logs them. A call happens in the
// middle of its part of the time that the send takes.
func (t *trainer) assign(r *scriptedRun, a *agent, send int) {
	if !t.changing() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(r.script.calls)
	for k := range n {
		at := r.began.Add(r.ended.Sub(r.began) * time.Duration(2*k+1) / time.Duration(2*n))
		e := draw(r.seed, "engine", r.id, strconv.Itoa(k)).n(max(1, t.Engines))
		v := t.version(e, at, t.calls)
		t.calls++
		r.versions = append(r.versions, v)
		if t.Log == nil {
			continue
		}
		line, _ := json.Marshal(map[string]any{
			"step_id": r.stepIDs[k], "run_id": r.id, "agent_id": a.id, "task": a.who.task, "sample": a.who.sample, "attempt": a.who.attempt,
			"send": send, "call": k, "engine": e, "version": v,
		})
		_, _ = t.Log.Write(append(line, '\n')) // whoever reads the log sees that a line is missing
	}
}

// weightVersion is what the trace of call k says.
func (r *scriptedRun) weightVersion(k int) string {
	if k >= len(r.versions) {
		return "default"
	}
	return r.trainer.said(r.versions[k])
}

// modelInfo is SGLang's page of the engine. The real Letta server has none: it is here so
// that one address is enough.
func (s *Server) modelInfo(*request) answer {
	t := &s.trainer
	t.mu.Lock()
	version := t.version(t.asked%max(1, t.Engines), s.cfg.Now().Add(-t.Lag), t.calls)
	t.asked++
	t.mu.Unlock()
	_, model := splitHandle(s.cfg.Model)
	body := quote([]byte(`{"model_path":`), model)
	body = append(body, `,"is_generation":true,"preferred_sampling_params":null,"weight_version":`...)
	return ok(append(quote(body, t.said(version)), '}'))
}
