package enginesim

import (
	"iter"
	"net/http"
	"slices"
	"strconv"
)

// An event is the data of an event in a stream. Listed is the number of sampled ids that the events
// up to this one contain.
type event struct {
	data   []byte
	listed int
}

// A delivery sends an answer and observes how far it gets.
type delivery struct {
	w http.ResponseWriter
	r *http.Request
	// cut, if positive, breaks the answer off: a stream after this many events, and any other answer
	// in the middle of its body.
	cut      int
	events   int  // events written
	listed   int  // number of sampled ids that were written
	complete bool // the whole answer was written, to a client that had not disconnected
	// settle records the delivery as complete. It is called before the client can have the whole
	// answer, so that a client that has it finds the record complete.
	settle func()
}

// stream sends the events and the final [DONE].
func (d *delivery) stream(events iter.Seq[event]) {
	d.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	d.w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(d.w)
	send := func(data []byte) bool {
		if d.cut > 0 && d.events >= d.cut || d.r.Context().Err() != nil {
			return false
		}
		_, err := d.w.Write(slices.Concat([]byte("data: "), data, []byte("\n\n")))
		d.events++
		return err == nil && out.Flush() == nil
	}
	for event := range events {
		if !send(event.data) {
			return
		}
		d.listed = event.listed
	}
	d.finish(func() bool { return send([]byte("[DONE]")) })
}

// whole sends an answer that is not a stream. It contains the given number of sampled ids.
func (d *delivery) whole(body []byte, listed int) {
	h := d.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	d.w.WriteHeader(http.StatusOK)
	if d.cut > 0 {
		_, _ = d.w.Write(body[:len(body)/2]) // the connection is closed in any case
		_ = http.NewResponseController(d.w).Flush()
		return
	}
	d.listed = listed
	d.finish(func() bool {
		_, err := d.w.Write(body)
		return err == nil
	})
	if !d.complete {
		d.listed = 0
	}
}

// finish sends the last part of the answer.
func (d *delivery) finish(send func() bool) {
	if d.cut > 0 || d.r.Context().Err() != nil {
		return
	}
	d.complete = true
	d.settle()
	d.complete = send()
}
