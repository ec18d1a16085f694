package chat

var tests = map[string]*function{
	"boolean":   test(func(v Value) bool { return v.kind == Bool }),
	"defined":   test(func(v Value) bool { return v.kind != Undefined }),
	"false":     test(func(v Value) bool { return v.kind == Bool && v.n == 0 }),
	"float":     test(func(v Value) bool { return v.kind == Float }),
	"integer":   test(func(v Value) bool { return v.kind == Int }),
	"iterable":  test(isIterable),
	"mapping":   test(func(v Value) bool { return v.kind == Dict }),
	"none":      test(func(v Value) bool { return v.kind == None }),
	"number":    test(isNumber),
	"sequence":  test(isSequence),
	"string":    test(Value.isStr),
	"true":      test(func(v Value) bool { return v.kind == Bool && v.n != 0 }),
	"undefined": test(func(v Value) bool { return v.kind == Undefined }),
	"in": fn(func(r *run, v Value, b bound) (Value, error) {
		in, err := r.contains(b.at(0), v)
		return BoolValue(in), err
	}, "seq!"),
}

func testByName(name string) *function {
	switch name {
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
	return tests[name]
}

func test(is func(v Value) bool) *function {
	f := fn(func(_ *run, v Value, _ bound) (Value, error) { return BoolValue(is(v)), nil })
	f.is = is
	return f
}

func comparison(op binop) *function {
	return fn(func(r *run, v Value, b bound) (Value, error) {
		ok, err := r.compare(op, v, b.at(0))
		return BoolValue(ok), err
	}, "/b!")
}

func isSequence(v Value) bool {
	switch v.kind {
	case String, Markup, List, Tuple, Dict, Undefined:
		return true
	}
	_, ok := v.ref.(*rangeObject)
	return ok
}

func isIterable(v Value) bool {
	switch v.ref.(type) {
	case *view, *generator, *loopObject:
		return true
	}
	return isSequence(v)
}
