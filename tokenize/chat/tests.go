package chat

type testFunc func(r *run, v Value, a args) (bool, error)

func testByName(name string) testFunc {
	switch name {
	case "defined":
		return plainTest(func(_ *run, v Value) bool { return v.kind != Undefined })
	case "undefined":
		return plainTest(func(_ *run, v Value) bool { return v.kind == Undefined })
	case "none":
		return plainTest(func(_ *run, v Value) bool { return v.kind == None })
	case "boolean":
		return plainTest(func(_ *run, v Value) bool { return v.kind == Bool })
	case "true":
		return plainTest(func(_ *run, v Value) bool { return v.kind == Bool && v.n != 0 })
	case "false":
		return plainTest(func(_ *run, v Value) bool { return v.kind == Bool && v.n == 0 })
	case "integer":
		return plainTest(func(_ *run, v Value) bool { return v.kind == Int })
	case "float":
		return plainTest(func(_ *run, v Value) bool { return v.kind == Float })
	case "number":
		return plainTest(func(_ *run, v Value) bool { return isNumber(v) })
	case "string":
		return plainTest(func(_ *run, v Value) bool { return v.isStr() })
	case "mapping":
		return plainTest(func(_ *run, v Value) bool { return v.kind == Dict })
	case "sequence":
		return plainTest(isSequence)
	case "iterable":
		return plainTest(isIterable)
	case "in":
		return func(r *run, v Value, a args) (bool, error) {
			b, err := a.bind("in", "seq!")
			if err != nil {
				return false, err
			}
			return r.contains(b.v[0], v)
		}
	case "==", "eq", "equalto":
		return comparison(cmpEq)
	case "!=", "ne":
		return comparison(cmpNe)
	case ">", "gt", "greaterthan":
		return comparison(cmpGt)
	case ">=", "ge":
		return comparison(cmpGe)
	case "<", "lt", "lessthan":
		return comparison(cmpLt)
	case "<=", "le":
		return comparison(cmpLe)
	}
	return nil
}

func plainTest(f func(r *run, v Value) bool) testFunc {
	return func(r *run, v Value, a args) (bool, error) {
		if len(a.pos)+len(a.kw) > 0 {
			return false, typeErrorf("test takes no arguments")
		}
		return f(r, v), nil
	}
}

func comparison(op cmpop) testFunc {
	return func(r *run, v Value, a args) (bool, error) {
		if err := a.only("comparison", 1, 1); err != nil {
			return false, err
		}
		return r.compare(op, v, a.pos[0])
	}
}

func isSequence(_ *run, v Value) bool {
	switch v.kind {
	case String, Markup, List, Tuple, Dict, Undefined:
		return true
	}
	_, ok := v.ref.(*rangeObject)
	return ok && v.kind == Object
}

func isIterable(_ *run, v Value) bool {
	switch v.kind {
	case String, Markup, List, Tuple, Dict, Undefined:
		return true
	}
	switch v.ref.(type) {
	case *rangeObject, *view, *iterator, *loopObject:
		return true
	}
	return false
}
