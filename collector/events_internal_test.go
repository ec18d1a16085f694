package collector

import (
	"log/slog"
	"reflect"
	"testing"
)

func TestEventsAreNilSafe(t *testing.T) {
	t.Parallel()
	v := reflect.ValueOf(Events{}.withDefaults(slog.New(slog.DiscardHandler)))
	for i := range v.NumField() {
		if v.Field(i).IsNil() {
			t.Errorf("%s has no default", v.Type().Field(i).Name)
		}
	}
}
