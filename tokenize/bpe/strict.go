package bpe

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// strict decodes a JSON value from jsonReader.raw into v as strictly as the reference engine, and
// more strictly in one way: member names must match a field exactly, be known and be unique. A
// field is required unless its tag has omitempty. null is valid only for pointers, which are also
// optional. name is the name of the value, for errors.
//
// encoding/json ignores case in names, takes the last of equal names, and ignores null.
func strict(raw []byte, name string, v any) error {
	if err := decodeStrict(newReader(raw, false), reflect.ValueOf(v).Elem()); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, name, err)
	}
	return nil
}

type rawDecoder interface{ decodeRaw(raw []byte) error }

func decodeStrict(r *jsonReader, v reflect.Value) error {
	if d, ok := reflect.TypeAssert[rawDecoder](v.Addr()); ok {
		raw, err := r.raw()
		if err != nil {
			return err
		}
		return d.decodeRaw(raw)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if r.Null() {
			v.SetZero()
			return r.fault()
		}
		v.Set(reflect.New(v.Type().Elem()))
		return decodeStrict(r, v.Elem())
	case reflect.Struct:
		return decodeStruct(r, v)
	case reflect.Map:
		return decodeMap(r, v)
	case reflect.Slice:
		return decodeSlice(r, v)
	case reflect.String:
		if r.Kind() != '"' {
			return notA(r, "a string")
		}
		v.SetString(strings.Clone(r.Text()))
		return r.fault()
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Uint32, reflect.Float64:
		return decodeScalar(r, v)
	default:
		panic("bpe: internal error: strict has no decoder for " + v.Type().String())
	}
}

func notA(r *jsonReader, want string) error {
	raw, err := r.raw()
	if err != nil {
		return err
	}
	return fmt.Errorf("found %.40s, want %s", raw, want)
}

func decodeScalar(r *jsonReader, v reflect.Value) error {
	kind := r.Kind()
	raw, err := r.raw()
	if err != nil {
		return err
	}
	s, want := string(raw), ""
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(s == "true")
		if s != "true" && s != "false" {
			want = "true or false"
		}
	case reflect.Float64:
		f, err := strconv.ParseFloat(s, 64)
		v.SetFloat(f)
		if err != nil || kind != '0' {
			want = "a number"
		}
	case reflect.Int, reflect.Int64: // Go only: the format has no negative numbers
		n, err := strconv.ParseUint(s, 10, v.Type().Bits()-1)
		v.SetInt(int64(n))
		if err != nil {
			want = "an integer ≥ 0"
		}
	default:
		n, err := strconv.ParseUint(s, 10, 32)
		v.SetUint(n)
		if err != nil {
			want = "an integer from 0 to 2^32-1"
		}
	}
	if want != "" {
		return fmt.Errorf("found %.40s, want %s", raw, want)
	}
	return nil
}

func decodeStruct(r *jsonReader, v reflect.Value) error {
	if r.Kind() != '{' {
		return notA(r, "an object")
	}
	fields := fieldsOf(v.Type())
	seen := uint64(0)
	err := r.object(func(key string) error {
		i := slices.IndexFunc(fields, func(f specField) bool { return f.name == key })
		if i < 0 {
			if k := slices.IndexFunc(fields, func(f specField) bool { return strings.EqualFold(f.name, key) }); k >= 0 {
				return fmt.Errorf("unknown field %.40q (did you mean %q?)", key, fields[k].name)
			}
			return fmt.Errorf("unknown field %.40q", key)
		}
		seen |= 1 << i
		if err := decodeStrict(r, v.Field(i)); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, f := range fields {
		if seen>>i&1 == 0 && !f.optional {
			return fmt.Errorf("%q is missing", f.name)
		}
	}
	return nil
}

type specField struct {
	name     string
	optional bool
}

// specs caches the fields of each struct, because a file can have ten thousand added tokens.
var specs sync.Map // reflect.Type to []specField

func fieldsOf(t reflect.Type) []specField {
	if known, ok := specs.Load(t); ok {
		if fields, ok := known.([]specField); ok {
			return fields
		}
	}
	fields := make([]specField, t.NumField()) // fewer than 64: decodeStruct has a bit for each in seen
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

func decodeMap(r *jsonReader, v reflect.Value) error {
	if r.Kind() != '{' {
		return notA(r, "an object")
	}
	v.Set(reflect.MakeMap(v.Type()))
	return r.object(func(key string) error {
		k, e := reflect.ValueOf(strings.Clone(key)), reflect.New(v.Type().Elem()).Elem()
		if err := decodeStrict(r, e); err != nil {
			return fmt.Errorf("%.40q: %w", key, err)
		}
		v.SetMapIndex(k, e)
		return nil
	})
}

func decodeSlice(r *jsonReader, v reflect.Value) error {
	if r.Kind() != '[' {
		return notA(r, "a list")
	}
	return r.list(func(i int) error {
		if r.Kind() == 'n' {
			return fmt.Errorf("element %d: null", i)
		}
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		if err := decodeStrict(r, v.Index(i)); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
		return nil
	})
}
