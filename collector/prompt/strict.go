package prompt

import (
	"slices"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// strict changes the schema of a tool in the same way as the server does if llm_config.strict is
// true. The changed schema forbids additional properties, requires all properties, and makes
// optional properties nullable.
//
// Source: helpers/tool_execution_helper.py:89 of letta-ai/letta.
func strict(schema chat.Value) chat.Value {
	if schema.Map() == nil {
		return schema
	}
	d := copyMap(schema, nil)
	d.Set("strict", chat.BoolValue(true))
	if p := member(schema, "parameters"); isText(member(p, "type"), "object") {
		d.Set("parameters", strictParameters(p))
	}
	return chat.MapValue(d)
}

func strictParameters(p chat.Value) chat.Value {
	d := copyMap(p, nil)
	d.Set("additionalProperties", chat.BoolValue(false))
	if properties := member(p, "properties"); properties.Map() != nil {
		required := member(p, "required").Items()
		d.Set("properties", chat.MapValue(copyMap(properties, func(name string, v chat.Value) chat.Value {
			v = strictValue(v)
			if slices.ContainsFunc(required, func(r chat.Value) bool { return isText(r, name) }) {
				return v
			}
			return nullable(v)
		})))
		d.Set("required", keysOf(properties))
	}
	return chat.MapValue(d)
}

// strictValue changes a nested schema, even inside arrays. Each object that defines properties then
// forbids additional properties and requires all defined properties.
func strictValue(v chat.Value) chat.Value {
	kind, properties, items := member(v, "type"), member(v, "properties"), member(v, "items")
	switch {
	case isText(kind, "object") && properties.Map() != nil:
		d := copyMap(v, nil)
		d.Set("properties", chat.MapValue(copyMap(properties, func(_ string, p chat.Value) chat.Value { return strictValue(p) })))
		d.Set("additionalProperties", chat.BoolValue(false))
		d.Set("required", keysOf(properties))
		return chat.MapValue(d)
	case isText(kind, "array") && items.Kind() != chat.Undefined:
		d := copyMap(v, nil)
		d.Set("items", strictValue(items))
		return chat.MapValue(d)
	}
	return v
}

func nullable(v chat.Value) chat.Value {
	if v.Map() == nil {
		return v
	}
	d, null := copyMap(v, nil), chat.NewMap(1)
	null.Set("type", chat.StringValue("null"))
	kind, either, ref := member(v, "type"), member(v, "anyOf"), member(v, "$ref")
	switch {
	case either.Kind() != chat.Undefined:
		d.Set("anyOf", listWith(either.Items(), chat.MapValue(null)))
	case ref.Kind() != chat.Undefined:
		only := chat.NewMap(1)
		only.Set("$ref", ref)
		d = chat.NewMap(v.Map().Len())
		d.Set("anyOf", chat.ListValue(chat.MapValue(only), chat.MapValue(null)))
		for i := range v.Map().Len() {
			if key, value := v.Map().At(i); !isText(key, "$ref") {
				name, _ := key.Text()
				d.Set(name, value)
			}
		}
	case kind.Kind() == chat.List:
		if slices.ContainsFunc(kind.Items(), func(k chat.Value) bool { return isText(k, "null") }) {
			return v
		}
		d.Set("type", listWith(kind.Items(), chat.StringValue("null")))
	case kind.Kind() != chat.Undefined && !isText(kind, "null"):
		d.Set("type", chat.ListValue(kind, chat.StringValue("null")))
	}
	return chat.MapValue(d)
}

func isText(v chat.Value, want string) bool {
	s, ok := v.Text()
	return ok && s == want
}

// copyMap copies a dict whose keys are strings. If change is not nil, copyMap applies the function
// change to each value.
func copyMap(v chat.Value, change func(name string, v chat.Value) chat.Value) *chat.Map {
	from := v.Map()
	d := chat.NewMap(from.Len() + 2)
	for i := range from.Len() {
		key, value := from.At(i)
		name, _ := key.Text()
		if change != nil {
			value = change(name, value)
		}
		d.Set(name, value)
	}
	return d
}

func keysOf(v chat.Value) chat.Value {
	keys := make([]chat.Value, v.Map().Len())
	for i := range keys {
		keys[i], _ = v.Map().At(i)
	}
	return chat.ListValue(keys...)
}

func listWith(items []chat.Value, last chat.Value) chat.Value {
	return chat.ListValue(append(slices.Clone(items), last)...)
}
