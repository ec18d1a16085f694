package config

import (
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // a minimal container has no time zone files

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
)

// timezoneSetting returns a setting for a time zone from the IANA database. An empty value means
// that the zone is unknown.
func timezoneSetting(key string, to **time.Location) *Setting {
	return scalar(key, "ZONE", to, parseTimezone, func(zone *time.Location) any {
		if zone == nil {
			return ""
		}
		return zone.String()
	})
}

func parseTimezone(text string) (*time.Location, error) {
	const want = "want UTC or a name such as Europe/Berlin"
	switch text {
	case "":
		return nil, nil
	case "Local": // a name that only Go understands
		return nil, fmt.Errorf("%q means the time zone of this machine: set the time zone of the server (%s)", text, want)
	}
	zone, err := time.LoadLocation(text)
	if err == nil {
		return zone, nil
	}
	near := ""
	if name := nearestZone(text); name != "" {
		near = "; did you mean " + name + "?"
	}
	return nil, fmt.Errorf("%q is not a time zone in the IANA database (%s)%s", text, want, near)
}

//go:embed zones.txt
var zoneNames string

var zones = sync.OnceValue(func() []string { return strings.Fields(zoneNames) })

// fixedOffset matches an offset from UTC, such as UTC+2, GMT-05 or +02:00.
var fixedOffset = regexp.MustCompile(`(?i)^(?:UTC|GMT)?([+-])0?([0-9]{1,2})(?::?00)?$`)

func nearestZone(text string) string {
	if m := fixedOffset.FindStringSubmatch(text); m != nil {
		sign := map[string]string{"+": "-", "-": "+"}[m[1]] // the Etc names use the POSIX sign, which is positive to the west
		n, _ := strconv.Atoi(m[2])
		if name := fmt.Sprintf("Etc/GMT%s%d", sign, n); n > 0 && strings.Contains(zoneNames, name+"\n") {
			return name
		}
		return ""
	}
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, " ", "_")) }
	lower := make([]string, len(zones()))
	for i, name := range zones() {
		lower[i] = plain(name)
		if plain(text) == lower[i] || strings.HasSuffix(lower[i], "/"+plain(text)) {
			return name
		}
	}
	near := format.Nearest(plain(text), lower)
	for i := range lower {
		if near != "" && lower[i] == near {
			return zones()[i]
		}
	}
	return ""
}
