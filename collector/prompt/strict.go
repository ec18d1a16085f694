package prompt

import (
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// strict returns the schema of a tool as the server changes it if llm_config.strict is true. It
// forbids additional properties, requires all properties, and makes optional ones nullable.
//
// Source: helpers/tool_execution_helper.py:89 of letta-ai/letta.
func strict(schema chat.Value) chat.Value {
	from := schema.Map()
	if from == nil {
		return schema
	}
	d := copyMap(from, 1)
	d.Set("strict", chat.BoolValue(true))
	if p, ok := from.Get("parameters"); ok && isObject(p) {
		d.Set("parameters", strictParameters(p))
	}
	return chat.MapValue(d)
}

func strictParameters(p chat.Value) chat.Value {
	from := p.Map()
	d := copyMap(from, 2)
	d.Set("additionalProperties", chat.BoolValue(false))
	properties, _ := from.Get("properties")
	if props := properties.Map(); props != nil {
		required := names(from, "required")
		out := chat.NewMap(props.Len())
		for i := range props.Len() {
			key, v := props.At(i)
			name, _ := key.Text()
			v = strictValue(v)
			if !required[name] {
				v = nullable(v)
			}
			out.Set(name, v)
		}
		d.Set("properties", chat.MapValue(out))
		d.Set("required", keysOf(props))
	}
	return chat.MapValue(d)
}

// strictValue changes a nested schema: objects with properties forbid additional ones and require
// all, also inside arrays.
func strictValue(v chat.Value) chat.Value {
	from := v.Map()
	if from == nil {
		return v
	}
	kind, _ := from.Get("type")
	switch t, _ := kind.Text(); t {
	case "object":
		properties, _ := from.Get("properties")
		props := properties.Map()
		if props == nil {
			return v
		}
		d := copyMap(from, 2)
		out := chat.NewMap(props.Len())
		for i := range props.Len() {
			key, p := props.At(i)
			name, _ := key.Text()
			out.Set(name, strictValue(p))
		}
		d.Set("properties", chat.MapValue(out))
		d.Set("additionalProperties", chat.BoolValue(false))
		d.Set("required", keysOf(props))
		return chat.MapValue(d)
	case "array":
		items, ok := from.Get("items")
		if !ok {
			return v
		}
		d := copyMap(from, 0)
		d.Set("items", strictValue(items))
		return chat.MapValue(d)
	}
	return v
}

func nullable(v chat.Value) chat.Value {
	from := v.Map()
	if from == nil {
		return v
	}
	null := chat.NewMap(1)
	null.Set("type", chat.StringValue("null"))
	if either, ok := from.Get("anyOf"); ok {
		d := copyMap(from, 0)
		d.Set("anyOf", chat.ListValue(append(append([]chat.Value(nil), either.Items()...), chat.MapValue(null))...))
		return chat.MapValue(d)
	}
	if ref, ok := from.Get("$ref"); ok {
		r := chat.NewMap(1)
		r.Set("$ref", ref)
		d := chat.NewMap(from.Len())
		d.Set("anyOf", chat.ListValue(chat.MapValue(r), chat.MapValue(null)))
		for i := range from.Len() {
			if key, value := from.At(i); !isText(key, "$ref") {
				name, _ := key.Text()
				d.Set(name, value)
			}
		}
		return chat.MapValue(d)
	}
	kind, ok := from.Get("type")
	if !ok {
		return v
	}
	d := copyMap(from, 0)
	switch {
	case kind.Kind() == chat.List:
		for _, k := range kind.Items() {
			if isText(k, "null") {
				return v
			}
		}
		d.Set("type", chat.ListValue(append(append([]chat.Value(nil), kind.Items()...), chat.StringValue("null"))...))
	case !isText(kind, "null"):
		d.Set("type", chat.ListValue(kind, chat.StringValue("null")))
	}
	return chat.MapValue(d)
}

func isObject(v chat.Value) bool {
	m := v.Map()
	if m == nil {
		return false
	}
	t, _ := m.Get("type")
	return isText(t, "object")
}

func isText(v chat.Value, want string) bool {
	s, ok := v.Text()
	return ok && s == want
}

func copyMap(from *chat.Map, more int) *chat.Map {
	d := chat.NewMap(from.Len() + more)
	for i := range from.Len() {
		key, v := from.At(i)
		name, _ := key.Text()
		d.Set(name, v)
	}
	return d
}

func keysOf(m *chat.Map) chat.Value {
	keys := make([]chat.Value, m.Len())
	for i := range keys {
		keys[i], _ = m.At(i)
	}
	return chat.ListValue(keys...)
}

func names(m *chat.Map, key string) map[string]bool {
	list, _ := m.Get(key)
	set := make(map[string]bool)
	for _, v := range list.Items() {
		if s, ok := v.Text(); ok {
			set[s] = true
		}
	}
	return set
}
