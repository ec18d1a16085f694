package chat

import (
	"errors"
	"sync"
)

// A run is the state of one render. Runs are pooled.
type run struct {
	t    *Template
	env  *env
	in   *Input
	ctx  []Value // by index into Template.names; filled on first use
	know []bool  // whether the element of ctx with the same index is filled

	out  []byte
	base int // length of out before the render
	line int

	stack []Value // arguments of the current calls
	kws   []keyword
	free  []*env

	steps int64 // steps left
	bytes int64 // bytes of memory left
	depth int   // depth of nested calls
}

// An env holds the variables of one function call.
type env struct {
	slots []Value
	up    *env
	// kept is true if a macro that is defined in the call can outlive the call. The env is then not
	// reused.
	kept bool
}

var runs = sync.Pool{New: func() any { return new(run) }}

// Render appends the text of the conversation to dst and returns the result. After an error, it
// returns dst unchanged.
//
// The error is an *Error. It wraps ErrRaised if the template refused the input, and ErrLimit if the
// render exceeded a limit.
func (t *Template) Render(dst []byte, in Input) ([]byte, error) {
	r := runs.Get().(*run)
	defer r.release()
	r.t, r.in = t, &in
	r.out, r.base = dst, len(dst)
	r.steps, r.bytes = t.opts.MaxSteps, t.opts.MaxValueBytes
	r.ctx = resize(r.ctx, len(t.names))
	r.know = resize(r.know, len(t.names))
	r.env = r.newEnv(t.slots, nil)
	if err := r.render(); err != nil {
		if _, ok := errors.AsType[*Error](err); ok {
			return dst, err
		}
		return dst, &Error{Template: t.name, Line: r.line, Err: err}
	}
	return r.out, nil
}

func (r *run) render() error {
	if err := r.in.prepare(); err != nil {
		return err
	}
	final := ""
	if r.in.ContinueFinalMessage != "" {
		var err error
		if final, err = r.tagFinal(r.in); err != nil {
			return err
		}
	}
	r.enter(r.t.loads)
	if _, err := r.exec(r.t.body); err != nil {
		return err
	}
	if err := r.checkOutput(); err != nil || r.in.ContinueFinalMessage == "" {
		return err
	}
	r.line = 0 // later errors have no line
	text, err := cutFinal(r.out[r.base:], final)
	r.out = r.out[:r.base+len(text)]
	return err
}

// release clears all references to the data of the render and keeps the memory for the next render.
func (r *run) release() {
	clear(r.ctx[:cap(r.ctx)])
	clear(r.know[:cap(r.know)])
	clear(r.stack[:cap(r.stack)])
	clear(r.kws[:cap(r.kws)])
	free := r.free
	if r.env != nil && !r.env.kept {
		clear(r.env.slots)
		r.env.up = nil
		free = append(free, r.env)
	}
	if len(free) > 16 {
		clear(free[16:])
		free = free[:16]
	}
	*r = run{ctx: r.ctx[:0], know: r.know[:0], stack: r.stack[:0], kws: r.kws[:0], free: free}
	runs.Put(r)
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

func (r *run) newEnv(slots int, up *env) *env {
	if n := len(r.free); n > 0 && cap(r.free[n-1].slots) >= slots {
		e := r.free[n-1]
		r.free = r.free[:n-1]
		e.slots, e.up, e.kept = e.slots[:slots], up, false
		return e
	}
	r.bytes -= int64(valueBytes * slots) // the next call of pay checks the limit
	return &env{slots: make([]Value, slots), up: up}
}

func (r *run) dropEnv(e *env) {
	if e.kept {
		return
	}
	clear(e.slots)
	e.up = nil
	r.free = append(r.free, e)
}

func (e *env) out(up int) *env {
	for ; up > 0; up-- {
		e = e.up
	}
	return e
}

func (r *run) get(p place) Value    { return r.env.out(p.up).slots[p.slot] }
func (r *run) set(p place, v Value) { r.env.out(p.up).slots[p.slot] = v }

func (r *run) enter(loads []load) {
	r.steps -= int64(len(loads) >> 3)
	for i := range loads {
		l := &loads[i]
		var v Value
		switch l.kind {
		case loadContext:
			v = r.lookup(l.name)
		case loadAlias:
			v = r.get(l.from)
		}
		r.env.slots[l.slot] = v
	}
}

// str returns a string value and pays for it.
func (r *run) str(s string) (Value, error) {
	return strOf(s), r.pay(0, len(s))
}

// list returns a list of elements that have already been paid for.
func (r *run) list(items []Value) (Value, error) {
	return Value{kind: List, ref: &seq{items: items}}, r.pay(0, listBytes)
}

func (r *run) checkOutput() error {
	if len(r.out)-r.base > r.t.opts.MaxOutputBytes {
		return limitErrorf("output of more than %d bytes", r.t.opts.MaxOutputBytes)
	}
	return nil
}

// capture runs the body of a block and returns its output. If a break or continue leaves the block,
// the output is discarded, as in Python.
func (r *run) capture(body []stmt) (string, flow, error) {
	start := len(r.out)
	f, err := r.exec(body)
	made := r.out[start:]
	r.out = r.out[:start]
	if f != flowNext || err != nil {
		return "", f, err
	}
	return string(made), f, r.pay(0, len(made))
}
