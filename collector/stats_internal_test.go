package collector

import (
	"reflect"
	"testing"
)

func TestYieldAddsEverything(t *testing.T) {
	t.Parallel()
	var sum, one Yield
	v := reflect.ValueOf(&one).Elem()
	for i := range v.NumField() {
		v.Field(i).SetInt(int64(i + 1))
	}
	sum.add(one)
	sum.add(one)
	for i := range v.NumField() {
		if got, want := reflect.ValueOf(sum).Field(i).Int(), int64(2*(i+1)); got != want {
			t.Errorf("%s is %d, want %d", v.Type().Field(i).Name, got, want)
		}
	}
}
