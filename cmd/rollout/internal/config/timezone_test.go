package config

import (
	"strings"
	"testing"
	"time"
)

func TestTimezone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, says string }{
		{"UTC", ""},
		{"Europe/Berlin", ""},
		{"Etc/GMT-14", ""},
		{"America/Argentina/Buenos_Aires", ""},
		{"", ""},
		{"Local", "the zone of this machine"},
		{"europe/berlin", "did you mean Europe/Berlin?"},
		{"Europe/Berln", "did you mean Europe/Berlin?"},
		{"Kolkata", "did you mean Asia/Kolkata?"},
		{"america/new york", "did you mean America/New_York?"},
		{"UTC+2", "did you mean Etc/GMT-2?"},
		{"-05:00", "did you mean Etc/GMT+5?"},
		{"+05:30", "want UTC, or a name like Europe/Berlin)"},
		{"../etc/passwd", "is not a time zone"},
		{"nowhere at all", "want UTC, or a name like Europe/Berlin)"},
	} {
		zone, err := parseTimezone(tt.text)
		switch {
		case tt.says == "" && (err != nil || tt.text != "" && zone.String() != tt.text):
			t.Errorf("%q: %v, %v", tt.text, zone, err)
		case tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)):
			t.Errorf("%q: %v, want %q", tt.text, err, tt.says)
		}
	}
}

// Every suggested zone can be loaded.
func TestZoneNames(t *testing.T) {
	t.Parallel()
	if len(zones()) < 500 {
		t.Errorf("%d zones", len(zones()))
	}
	for _, name := range zones() {
		if _, err := time.LoadLocation(name); err != nil {
			t.Error(err)
		}
	}
}
