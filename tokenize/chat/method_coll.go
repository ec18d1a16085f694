package chat

// dictMethod returns a dict method, or nil.
func dictMethod(name string) methodFunc {
	switch name {
	case "get":
		return dictGet
	case "items":
		return dictView(name, 'i')
	case "keys":
		return dictView(name, 'k')
	case "values":
		return dictView(name, 'v')
	}
	return nil
}

func dictGet(r *run, v Value, a args) (Value, error) {
	if err := a.only("get", 1, 2); err != nil {
		return v, err
	}
	key := a.pos[0]
	i, err := r.find(v.Map(), key)
	if err != nil {
		return v, err
	}
	if i >= 0 {
		return v.Map().vals[i], nil
	}
	if len(a.pos) == 2 {
		return a.pos[1], nil
	}
	return NoneValue(), nil
}

func dictView(name string, kind byte) methodFunc {
	return func(_ *run, v Value, a args) (Value, error) {
		return objectOf(&view{v.Map(), kind}), a.only(name, 0, 0)
	}
}
