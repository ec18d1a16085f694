package bpe

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// strict decodes the JSON value raw into *v with jsonReader.strict. The parameter name is the name
// of the value in errors.
func strict(raw []byte, name string, v any) error {
	r := newReader(raw, false)
	r.strict(v)
	r.Under(name)
	return r.fault()
}

// strict reads a value into *v. It is as strict as the reference engine, and stricter about member
// names: each name must exactly match a field and be unique. A field is required unless it is a
// pointer or its tag has omitempty. null is valid only for pointers.
//
// encoding/json is not strict enough, because it ignores case in names, uses the last of several
// members with the same name, and ignores null.
func (r *jsonReader) strict(v any) { r.decode(reflect.ValueOf(v).Elem()) }

func (r *jsonReader) decode(v reflect.Value) {
	if p, ok := reflect.TypeAssert[*part](v.Addr()); ok {
		p.read(r)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !r.Null() {
			v.Set(reflect.New(v.Type().Elem()))
			r.decode(v.Elem())
		}
	case reflect.Struct:
		r.decodeStruct(v)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for key := range r.Members {
			e := reflect.New(v.Type().Elem()).Elem()
			r.decode(e)
			v.SetMapIndex(reflect.ValueOf(strings.Clone(key)), e)
		}
	case reflect.Slice:
		for i := range r.Elements {
			if r.Kind() == 'n' {
				r.Mismatch("a value")
				break
			}
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
			r.decode(v.Index(i))
		}
	case reflect.String:
		v.SetString(strings.Clone(r.Text()))
	case reflect.Bool:
		v.SetBool(r.Bool())
	case reflect.Float64:
		f, err := strconv.ParseFloat(r.Number(), 64)
		if v.SetFloat(f); err != nil && r.Err() == nil {
			r.Fail("the number is too large")
		}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32: // never negative
		r.Kind()
		at := r.Offset()
		n := r.Int(64)
		switch {
		case r.Err() != nil:
		case r.b[at] == '-' || v.CanInt() && v.OverflowInt(n) || v.CanUint() && v.OverflowUint(uint64(n)):
			r.FailAt(at, "the number "+r.Since(at)+" is out of range")
		case v.CanInt():
			v.SetInt(n)
		default:
			v.SetUint(uint64(n))
		}
	default:
		panic("bpe: internal error: strict has no decoder for " + v.Type().String())
	}
}

func (r *jsonReader) decodeStruct(v reflect.Value) {
	fields := fieldsOf(v.Type())
	seen := uint64(0)
	for key := range r.Members {
		seen |= r.decodeField(v, fields, key)
	}
	for i, f := range fields {
		if r.Err() == nil && seen>>i&1 == 0 && !f.optional {
			r.failf("%q is missing", f.name)
		}
	}
}

// decodeField reads the value of the member key into the matching field of the struct v. It returns
// the bit that decodeStruct uses for the field.
func (r *jsonReader) decodeField(v reflect.Value, fields []specField, key string) uint64 {
	i := slices.IndexFunc(fields, func(f specField) bool { return f.name == key })
	if i >= 0 {
		r.decode(v.Field(i))
		return 1 << i
	}
	if i = slices.IndexFunc(fields, func(f specField) bool { return strings.EqualFold(f.name, key) }); i >= 0 {
		r.failf("unknown field (did you mean %q?)", fields[i].name)
	}
	r.failf("unknown field")
	return 0
}

type specField struct {
	name     string
	optional bool
}

// specs caches the fields of each struct, because a file can have ten thousand added tokens.
var specs sync.Map // maps a reflect.Type to a []specField

func fieldsOf(t reflect.Type) []specField {
	if known, ok := specs.Load(t); ok {
		if fields, ok := known.([]specField); ok {
			return fields
		}
	}
	fields := make([]specField, t.NumField()) // fewer than 64 fields, because decodeStruct keeps one bit per field in seen
	for i := range fields {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		fields[i] = specField{name, option == "omitempty" || f.Type.Kind() == reflect.Pointer}
	}
	specs.Store(t, fields)
	return fields
}
