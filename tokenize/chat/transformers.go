package chat

import (
	"fmt"
	"slices"
	"strings"
)

// Transformers is a version of Hugging Face's transformers library. Each constant is a version that
// changed how apply_chat_template prepares a conversation, or which template features it supports.
// A constant also represents all later versions before the next constant.
//
//	                                                        4.57, 5.0  5.21  5.22.2  5.23
//	thinking and reasoning are reasoning_content as well              yes   yes     yes
//	a member of a (str, Enum) class prints as its value                     yes     yes
//	a message that is not a dict is an error                                yes     yes
//	the keys of a message whose value is None are omitted                           yes
//
// The first constant also represents earlier versions. One difference from the library remains:
// before version 5.20, its continue_final_message supports only the key content. This package
// supports other keys for all versions. Special tokens have the same names as in transformers 5.
// Versions 4.57 and 5.0 pass the same input to templates. They differ only in the tokenizer that
// AutoTokenizer loads from a folder; see bpe.Options.
//
// Source: apply_chat_template in tokenization_utils_base.py and render_jinja_template in
// utils/chat_template_utils.py, versions 4.45.2 to 5.23.0.
type Transformers uint8

// The versions, oldest first.
const (
	Transformers457 Transformers = iota
	Transformers50
	Transformers521
	Transformers5222
	Transformers523
)

// String returns the version number.
func (t Transformers) String() string {
	switch t {
	case Transformers457:
		return "4.57"
	case Transformers50:
		return "5.0"
	case Transformers521:
		return "5.21"
	case Transformers5222:
		return "5.22.2"
	case Transformers523:
		return "5.23"
	}
	return fmt.Sprintf("Transformers(%d)", uint8(t))
}

// AllTransformers returns the versions, oldest first.
func AllTransformers() []Transformers {
	return []Transformers{Transformers457, Transformers50, Transformers521, Transformers5222, Transformers523}
}

// prepare changes the input as apply_chat_template does before a render, or returns the error that
// apply_chat_template raises. It does not change variables in Extra.
func (in *Input) prepare() error {
	for _, part := range []struct {
		name string
		v    Value
	}{{"tools", in.Tools}, {"documents", in.Documents}} {
		if part.v.kind != Undefined && part.v.kind != None && part.v.kind != List && part.v.kind != Tuple {
			return typeErrorf("%s: must be a list, not %s", part.name, typeName(part.v))
		}
		for i, x := range part.v.Items() {
			if x.kind != Dict {
				return typeErrorf("%s[%d]: must be a dict, not %s", part.name, i, typeName(x))
			}
		}
	}
	items, isList := in.Messages.Items(), in.Messages.kind == List || in.Messages.kind == Tuple
	switch {
	case in.Messages.kind == Undefined:
		return nil
	case isList && len(items) == 0:
		return valueErrorf("messages: must not be empty")
	case isList && (items[0].kind == List || items[0].kind == Tuple):
		return typeErrorf("messages: must be one conversation, not a list of them")
	case in.Transformers < Transformers521:
		return nil
	case !isList:
		return typeErrorf("messages: must be a list, not %s", typeName(in.Messages))
	}
	var changed []Value // a copy of items, made when the first item changes
	for i, x := range items {
		m := x.Map()
		if m == nil {
			if in.Transformers >= Transformers5222 {
				return typeErrorf("messages[%d]: must be a dict, not %s", i, typeName(x))
			}
			continue
		}
		to := m
		if in.Transformers >= Transformers523 {
			to = withoutNone(to)
		}
		if to = aliased(to); to != m {
			if changed == nil {
				changed = slices.Clone(items)
			}
			changed[i] = MapValue(to)
		}
	}
	if changed != nil {
		in.Messages = ListValue(changed...)
	}
	return nil
}

// withoutNone returns the message without keys whose value is None, or m itself if no value is
// None. It does not change nested values.
func withoutNone(m *Map) *Map {
	isNone := func(v Value) bool { return v.kind == None }
	if !slices.ContainsFunc(m.vals, isNone) {
		return m
	}
	out := NewMap(m.Len())
	for i, v := range m.vals {
		if !isNone(v) {
			out.add(m.keys[i], v)
		}
	}
	return out
}

// The keys of a message that can contain reasoning, in order of precedence.
var reasoningKeys = [...]string{"reasoning_content", "thinking", "reasoning"}

// aliased returns the message with its reasoning under the keys reasoning_content and thinking. An
// existing key thinking keeps its value. The key thinking becomes the first key, as in Python. If
// the message has no reasoning, aliased returns m itself.
func aliased(m *Map) *Map {
	for _, key := range reasoningKeys {
		v, ok := m.Get(key)
		if !ok || v.kind == None {
			continue
		}
		out := NewMap(m.Len() + 2)
		out.Set("thinking", v)
		for i, k := range m.keys {
			if k.isStr() {
				out.set(k, m.vals[i])
			} else {
				out.add(k, m.vals[i])
			}
		}
		out.Set("reasoning_content", v)
		return out
	}
	return m
}

// An enum is a member of a Python class that derives from str and Enum. It is a str that prints as
// its name, unless the transformers library converts it to a plain str.
type enum struct{ name string }

// EnumValue returns a member of a Python class that derives from str and Enum. name includes the
// class, as in MessageRole.user, and value is the text.
func EnumValue(name, value string) Value {
	v := StringValue(value)
	v.ref = &enum{name}
	return v
}

// enum returns the enum of v, or nil if v is a plain value.
func (r *run) enum(v Value) *enum {
	if v.ref == nil || v.kind != String || r.in.Transformers >= Transformers5222 {
		return nil
	}
	return v.ref.(*enum)
}

// shown returns the plain str that v prints as, or v itself.
func (r *run) shown(v Value) Value {
	if e := r.enum(v); e != nil {
		return strOf(e.name)
	}
	return v
}

// attr returns an attribute that an enum member has in addition to the attributes of a str.
func (e *enum) attr(v Value, name string) (Value, bool) {
	switch name {
	case "name":
		return strOf(e.name[strings.LastIndexByte(e.name, '.')+1:]), true
	case "value":
		return v.plain(), true
	}
	return Value{}, false
}
