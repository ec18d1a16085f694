package chat

import (
	"errors"
)

func (r *run) exec(body []stmt) (flow, error) {
	for _, s := range body {
		if err := r.step(); err != nil {
			return 0, err
		}
		if f, err := s.exec(r); f != flowNext || err != nil {
			return f, err
		}
	}
	return flowNext, nil
}

func (s *textStmt) exec(r *run) (flow, error) {
	r.out = append(r.out, s.text...)
	return 0, r.checkOutput()
}

func (s *outStmt) exec(r *run) (flow, error) {
	r.line = s.line
	if sum, ok := s.e.(*sumExpr); ok {
		return 0, sum.write(r)
	}
	v, err := s.e.eval(r)
	if err != nil {
		return 0, err
	}
	return 0, r.write(v)
}

func (r *run) write(v Value) error {
	if v.isStr() {
		return r.writeString(r.shown(v).s)
	}
	out, err := r.appendStr(r.out, v)
	if err != nil {
		return err
	}
	r.out = out
	return r.checkOutput()
}

func (r *run) writeString(s string) error {
	if len(r.out)-r.base+len(s) > r.t.opts.MaxOutputBytes {
		return limitErrorf("output of more than %d bytes", r.t.opts.MaxOutputBytes)
	}
	r.out = append(r.out, s...)
	return nil
}

func (s *ifStmt) exec(r *run) (flow, error) {
	r.line = s.line
	v, err := s.test.eval(r)
	if err != nil {
		return 0, err
	}
	if truth(v) {
		return r.exec(s.body)
	}
	for _, a := range s.alts {
		r.line = a.line
		v, err := a.test.eval(r)
		if err != nil {
			return 0, err
		}
		if truth(v) {
			return r.exec(a.body)
		}
	}
	return r.exec(s.els)
}

func (s *setStmt) exec(r *run) (flow, error) {
	r.line = s.line
	if err := r.checkTarget(&s.target); err != nil {
		return 0, err
	}
	v, err := s.e.eval(r)
	if err != nil {
		return 0, err
	}
	return 0, r.assign(&s.target, v)
}

// checkTarget checks that each attribute in a target belongs to a namespace. It is called before
// any value is evaluated.
func (r *run) checkTarget(t *target) error {
	for i := range t.parts {
		if err := r.checkTarget(&t.parts[i]); err != nil {
			return err
		}
	}
	if t.attr == "" {
		return nil
	}
	if _, ok := r.get(t.place).ref.(*namespace); !ok {
		return errors.New("cannot assign an attribute of '" + t.name + "', which is not a namespace")
	}
	return nil
}

func (r *run) assign(t *target, v Value) error {
	switch {
	case t.tuple:
		return r.unpack(t, v)
	case t.attr != "":
		ns, ok := r.get(t.place).ref.(*namespace)
		if !ok {
			return errors.New("cannot assign an attribute of '" + t.name + "', which is not a namespace")
		}
		return r.put(&ns.attrs, strOf(t.attr), v)
	}
	r.set(t.place, v)
	return nil
}

func (r *run) unpack(t *target, v Value) error {
	var items []Value
	if v.kind == List || v.kind == Tuple {
		items = v.Items()
	} else {
		it, err := r.iterate(v)
		if err != nil {
			return err
		}
		if items = it.items; it.err != nil && len(items) <= len(t.parts) {
			return it.err
		}
	}
	if len(items) != len(t.parts) {
		return valueErrorf("cannot assign %d values to %d names", len(items), len(t.parts))
	}
	for i := range t.parts {
		if err := r.assign(&t.parts[i], items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *setBlockStmt) exec(r *run) (flow, error) {
	r.line = s.line
	r.enter(s.frame.loads)
	text, f, err := r.capture(s.body)
	if f != flowNext || err != nil {
		return f, err
	}
	v := strOf(text)
	if s.filter != nil {
		if v, err = r.filterText(s.filter, v); err != nil {
			return 0, err
		}
	}
	return 0, r.assign(&s.target, v)
}

// filterText applies the filters of a block to its captured text.
func (r *run) filterText(e expr, text Value) (Value, error) {
	f := e.(*applyExpr)
	v := text
	if f.of != nil {
		var err error
		if v, err = r.filterText(f.of, text); err != nil {
			return v, err
		}
	}
	return f.apply(r, v)
}

func (s *filterStmt) exec(r *run) (flow, error) {
	r.line = s.line
	r.enter(s.frame.loads)
	text, f, err := r.capture(s.body)
	if f != flowNext || err != nil {
		return f, err
	}
	v, err := r.filterText(s.filter, strOf(text))
	if err != nil {
		return 0, err
	}
	return 0, r.writeText(v)
}

// writeText writes the result of a filter block. The result must be a str, because Jinja does not
// convert it.
func (r *run) writeText(v Value) error {
	if !v.isStr() {
		return typeErrorf("the filter of a block must return a str, not %s", typeName(v))
	}
	return r.writeString(v.s)
}

func (s *withStmt) exec(r *run) (flow, error) {
	r.enter(s.frame.loads)
	if f, err := s.set.exec(r); err != nil {
		return f, err
	}
	return r.exec(s.body)
}

func (s *macroStmt) exec(r *run) (flow, error) {
	r.env.kept = true
	r.set(s.place, objectOf(&macro{body: s.macroBody, env: r.env}))
	return 0, r.pay(0, 2*valueBytes+valueBytes*len(r.env.slots))
}

func (s *genStmt) exec(r *run) (flow, error) {
	v, err := r.callMacro(&macro{body: s.macroBody, env: r.env}, args{})
	if err != nil {
		return 0, err
	}
	return 0, r.writeString(v.s)
}

func (breakStmt) exec(*run) (flow, error)    { return flowBreak, nil }
func (continueStmt) exec(*run) (flow, error) { return flowContinue, nil }

func (s *forStmt) exec(r *run) (flow, error) {
	r.line = s.line
	v, err := s.iter.eval(r)
	if err != nil {
		return 0, err
	}
	return s.loop(r, v)
}

func (r *run) enterCall() error {
	if r.depth++; r.depth > r.t.opts.MaxDepth {
		return limitErrorf("macro calls nest deeper than %d levels", r.t.opts.MaxDepth)
	}
	return nil
}

// loop runs the body for each element. As in Jinja, the else branch runs if every iteration ended
// with break or continue, or if there was no iteration.
func (s *forStmt) loop(r *run, v Value) (flow, error) {
	in, err := r.iterate(v)
	if err != nil {
		return 0, err
	}
	source := loopSource{iter: in}
	if s.test != nil {
		source.test, source.env = s, r.env
		r.enter(s.testFrame.loads)
	}
	var lc *loopObject
	if s.extended {
		if err := r.pay(0, 2*objectBytes); err != nil {
			return 0, err
		}
		r.env.kept = r.env.kept || s.test != nil
		lc = &loopObject{loopSource: source, index: -1}
	}
	ran := false
	for {
		if err := r.step(); err != nil {
			return 0, err
		}
		var x Value
		var ok bool
		if lc != nil {
			x, ok, err = lc.next(r)
		} else {
			x, ok, err = source.next(r)
		}
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		if s.target.tuple || s.target.attr != "" {
			err = r.assign(&s.target, x)
		} else {
			r.set(s.target.place, x)
		}
		if err != nil {
			return 0, err
		}
		if lc != nil {
			r.set(s.loopVar, objectOf(lc))
		}
		r.enter(s.bodyFrame.loads)
		f, err := r.exec(s.body)
		if err != nil {
			return 0, err
		}
		if f == flowBreak {
			break
		}
		ran = ran || f == flowNext
	}
	if ran {
		return 0, nil
	}
	r.enter(s.elseFrame.loads)
	return r.exec(s.els)
}

func (s *forStmt) passes(r *run, x Value) (bool, error) {
	if err := r.step(); err != nil {
		return false, err
	}
	if err := r.assign(&s.testTgt, x); err != nil {
		return false, err
	}
	v, err := s.test.eval(r)
	return truth(v), err
}
