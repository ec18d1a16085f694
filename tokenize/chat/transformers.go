package chat

import (
	"fmt"
	"slices"
	"strings"
)

// Transformers is a release of Hugging Face's transformers at which apply_chat_template
// began to do something else to a conversation, or its templates could do something else.
// It stands for the releases from there up to the next one.
//
//	                                                        4.57, 5.0  5.21  5.22.2  5.23
//	thinking and reasoning are reasoning_content as well              yes   yes     yes
//	names that begin with _ on a namespace are errors                       yes     yes
//	dict has fromkeys and nothing else                                      yes     yes
//	a member of a class of str and Enum prints as its value                 yes     yes
//	a message that is not a dict is an error                                yes     yes
//	the keys of a message whose value is None are left out                          yes
//
// The first one stands for earlier releases too; of these only continue_final_message
// differs, which knows no key but content in 4.57: that it takes others is of 5.20. Special
// tokens are named as transformers 5 names them. 4.57 and 5.0 give templates the
// same input. They differ only in the tokenizer that AutoTokenizer loads from a folder: see
// bpe.Options.
//
// Source: apply_chat_template of tokenization_utils_base.py and render_jinja_template of
// utils/chat_template_utils.py in the releases 4.45.2 to 5.23.0.
type Transformers uint8

// The releases. The zero value is the first one.
const (
	Transformers457 Transformers = iota
	Transformers50
	Transformers521
	Transformers5222
	Transformers523
)

// String is the number of the release.
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

// AllTransformers returns the releases, oldest first.
func AllTransformers() []Transformers {
	return []Transformers{Transformers457, Transformers50, Transformers521, Transformers5222, Transformers523}
}

// prepare does to an input what apply_chat_template does before it renders, and refuses
// what it refuses. What Extra replaces is left as it is.
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
	var changed []Value // a copy of items, once one of them changes
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

// withoutNone returns the message without the keys whose value is None: m itself where
// there are none. What lies deeper is left as it is.
func withoutNone(m *Map) *Map {
	isNone := func(v Value) bool { return v.kind == None }
	if !slices.ContainsFunc(m.vals, isNone) {
		return m
	}
	out := NewMap(m.Len())
	for i, v := range m.vals {
		if !isNone(v) {
			out.set(m.keys[i], v)
		}
	}
	return out
}

// The keys of a message that hold what the model thought, the best one first.
var reasoningKeys = [...]string{"reasoning_content", "thinking", "reasoning"}

// aliased returns the message with its reasoning as reasoning_content and, where it has
// no thinking of its own, as thinking: m itself where it has no reasoning. As in Python,
// thinking becomes the first key.
func aliased(m *Map) *Map {
	for _, key := range reasoningKeys {
		v, ok := m.Get(key)
		if !ok || v.kind == None {
			continue
		}
		out := NewMap(m.Len() + 2)
		out.Set("thinking", v)
		for i, k := range m.keys {
			out.set(k, m.vals[i])
		}
		out.Set("reasoning_content", v)
		return out
	}
	return m
}

// checkNames refuses a namespace with names that begin with an underscore.
func (r *run) checkNames(attrs *Map) error {
	for _, k := range attrs.keys {
		if err := r.checkName(k); err != nil {
			return err
		}
	}
	return nil
}

// checkName refuses such a name.
func (r *run) checkName(name Value) error {
	if r.in.Transformers >= Transformers5222 && name.isStr() && len(name.s) > 0 && name.s[0] == '_' {
		return fmt.Errorf("a namespace cannot have the attribute %s: it begins with an underscore", quote(name.s))
	}
	return nil
}

// An enum is a member of a Python class of str and Enum: a str that prints as its name
// where transformers does not make a plain str of it.
type enum struct{ name string }

// EnumValue returns a member of a Python class of str and Enum: name is that of the
// member with its class, MessageRole.user, and value the text that it is.
func EnumValue(name, value string) Value {
	v := StringValue(value)
	v.ref = &enum{name}
	return v
}

// enum returns what makes v more than a str, nil where nothing does.
func (r *run) enum(v Value) *enum {
	if v.ref == nil || v.kind != String || r.in.Transformers >= Transformers5222 {
		return nil
	}
	return v.ref.(*enum)
}

// shown is v, or the plain str that it prints as.
func (r *run) shown(v Value) Value {
	if e := r.enum(v); e != nil {
		return strOf(e.name)
	}
	return v
}

// attr is an attribute that a member has besides those of a str.
func (e *enum) attr(v Value, name string) (Value, bool) {
	switch name {
	case "name":
		return strOf(e.name[strings.LastIndexByte(e.name, '.')+1:]), true
	case "value":
		return v.plain(), true
	}
	return Value{}, false
}

// isDictType reports whether v is the type dict, as the global of that name is in
// earlier releases, and not an object that makes dicts.
func (r *run) isDictType(v Value) bool {
	return isDictClass(v) && r.in.Transformers < Transformers5222
}
