package chat

var dictMethods = map[string]*function{
	"get":    fn(dictGet, "/key!", "/default"),
	"items":  fn(dictView('i')),
	"keys":   fn(dictView('k')),
	"values": fn(dictView('v')),
}

func dictGet(r *run, v Value, b bound) (Value, error) {
	i, err := r.find(v.Map(), b.at(0))
	if err != nil {
		return v, err
	}
	if i >= 0 {
		return v.Map().vals[i], nil
	}
	return b.or(1, NoneValue()), nil
}

func dictView(kind byte) func(r *run, v Value, _ bound) (Value, error) {
	return func(_ *run, v Value, _ bound) (Value, error) { return objectOf(&view{v.Map(), kind}), nil }
}
