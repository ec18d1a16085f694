package lettasim

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/rollout-rl/rollout/collector/wait"
)

func (s *Server) deliver(q *request, p *reply) answer {
	var kind FaultKind
	if p.fault != nil {
		kind = p.fault.Kind
	}
	if kind == Reset {
		reset(q.w)
		return answer{status: p.status}
	}
	parts := p.parts()
	total := int64(0)
	for _, b := range parts {
		total += int64(len(b))
	}
	rate := s.cfg.BodyRate
	announced := total // the Content-Length
	written := total   // the number of bytes to write
	switch kind {
	case Truncated:
		announced, written = total/2, total/2
	case Drop, Stalled:
		written = total / 2
	case Slow:
		if rate = p.fault.Bytes; rate == 0 {
			rate = 64 << 10
		}
	case Huge:
		size := cmp.Or(p.fault.Bytes, 200<<20)
		parts = pad(parts, size-total)
		announced, written = max(size, total), max(size, total)
	default: // the other kinds change the contents
	}
	h := q.w.Header()
	h.Set("Server", "uvicorn")
	h.Set("Content-Type", p.contentType)
	h.Set("Content-Length", strconv.FormatInt(announced, 10))
	// Count the answer before writing it, so that it is already counted when the client has read
	// it. If the write fails, undo the count.
	counts := p.status == http.StatusOK && kind != Truncated && kind != Huge && kind != Drop && kind != Stalled
	if counts {
		s.count(p)
	}
	q.w.WriteHeader(p.status)
	if !s.writeBody(q, parts, written, rate) && counts {
		s.uncount(p)
	}
	if kind == Drop || kind == Stalled {
		flush(q.w)
		if kind == Stalled {
			<-q.Context().Done()
		}
		panic(http.ErrAbortHandler) // net/http closes the connection
	}
	return answer{status: p.status}
}

func (s *Server) count(p *reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Answered++
	p.run.told = true
	if s.cfg.KeepAnswers {
		s.answers = append(s.answers, p.answer)
	}
}

func (s *Server) uncount(p *reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Answered--
	p.run.told = false
	if i := slices.Index(s.answers, p.answer); i >= 0 {
		s.answers = slices.Delete(s.answers, i, i+1)
	}
}

// countTrace records that the client has received the trace of a step. When the client has received
// the traces of all sampled steps in a run, countTrace records the run's lost answer.
func (s *Server) countTrace(st *step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := st.run
	if r.traced == nil {
		r.traced = map[int]bool{}
	}
	r.traced[st.k] = true
	if r.told || r.answer.RunID == "" || !s.cfg.KeepAnswers {
		return
	}
	for _, other := range r.steps {
		var sampled int
		_, _ = fmt.Sscan(string(r.source.step(other.k).values["completion_tokens"]), &sampled)
		if sampled > 0 && !r.traced[other.k] {
			return
		}
	}
	r.told = true
	a := r.answer
	a.Traced = true
	if faultKinds[a.Fault].ofConnection {
		a.Fault = ""
	}
	s.answers = append(s.answers, a)
}

// pad inserts n bytes of white space after the first byte of a body. The inserted parts share one
// 64 KiB buffer.
func pad(parts [][]byte, n int64) [][]byte {
	block := bytes.Repeat([]byte(" "), 64<<10)
	head := parts[0]
	out := [][]byte{head[:1]}
	for ; n > 0; n -= int64(len(block)) {
		out = append(out, block[:min(n, int64(len(block)))])
	}
	out = append(out, head[1:])
	return append(out, parts[1:]...)
}

// writeBody writes the first n bytes of the parts. If rate is positive, it is the number of bytes
// to write per second. writeBody returns false if the client disconnected.
func (s *Server) writeBody(q *request, parts [][]byte, n, rate int64) bool {
	var sent int64
	defer func() {
		s.mu.Lock()
		s.stats.BytesSent += sent
		s.mu.Unlock()
	}()
	step := n
	if rate > 0 {
		step = max(1, rate/50)
	}
	for _, b := range parts {
		for len(b) > 0 && sent < n {
			piece := b[:min(int64(len(b)), n-sent, step)]
			if rate > 0 && !wait.For(q.Context(), time.Duration(len(piece))*time.Second/time.Duration(rate)) {
				return false
			}
			m, err := q.w.Write(piece)
			sent += int64(m)
			if err != nil {
				return false
			}
			b = b[len(piece):]
			if rate > 0 {
				flush(q.w)
			}
		}
	}
	return true
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// reset closes the connection without an answer. On a TCP connection, it sends a TCP reset.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, is := conn.(*net.TCPConn); is {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
