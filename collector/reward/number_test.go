package reward_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/reward"
)

func scored(t *testing.T, s collector.Scorer, answer, output string) float64 {
	t.Helper()
	r, err := s.Score(t.Context(), &collector.Task{ID: "t", Answer: &answer}, &collector.Reply{Output: output})
	if err != nil || r.Value == nil {
		return -1
	}
	return *r.Value
}

// TestLastNumber checks the exact value of the last number. "-" means that there is none or that
// it has no exact value.
func TestLastNumber(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want  string
		texts []string
	}{
		{"72", []string{"72", "It is 72.", "72!", "first 24, then 48: 72"}},
		{"5", []string{"5."}},
		{"1/2", []string{".5", "0.50"}},
		{"-", []string{"no number", "", ".", "-"}},

		{"-3", []string{
			"x = -3", "x = \u22123", "x=\uFE633", "x = \uFF0D3", "(\u22123)", "≈\u22123", "“-3”", "答案是-3",
			"答案是：\u22123。", "$-3$", `\(-3\)`, "**-3**", "-3\u00B0C", "x = \u20113", "x = \u20133",
		}},
		{"3", []string{"+3", "x-3", "x\u20133"}},
		{"-5", []string{"-$5", "$-5", `-\$5`, "\u2212€5", "from 3\u2013\u22125", "\u2013$5"}},
		{"20", []string{"pages 10-20", "pages 10\u221220", "$10-$20"}},
		{"5", []string{"3\u20135", "3 \u20135"}},
		{"60", []string{"50%-60%"}},
		{"4", []string{"7 - 4"}},
		{"2000", []string{"1990\u2013\u00A02000"}},
		{"7", []string{"of 5%\u20137%"}},

		{"2469/2", []string{"1,234.50"}},
		{"1234567", []string{"$1,234,567"}},
		{"8000", []string{
			"8{,}000", `\boxed{8{,}000}`, `8,\!000`, `8\,000`, "8\u202F000", "8\u00A0000", "8~000", "8'000",
			"8\u2019000", "8_000",
		}},
		{"8000000", []string{"8\u2009000\u2009000"}},
		{"-", []string{"8 000", "12 050", "1.000.000", "v1.2.3"}},
		{"1/2", []string{"at 8 0.5"}},
		{"5", []string{"1\u00A0234,5"}},
		{"3141592/1000000", []string{"3.141\u202F592"}},
		{"0", []string{"1,000\u00A0000", "1,0000"}},
		{"14", []string{"3,14"}},
		{"7", []string{"2,3,5,7"}},
		{"34", []string{"12,34"}},

		{"1000", []string{"1e3", "1E+3"}},
		{"3/200", []string{"1.5e-2", `1.5 \cdot 10^{-2}`}},
		{"-200", []string{"-2e2"}},
		{"1", []string{"1e"}},
		{"300000000", []string{"3e8 m", "3×10^8", `3 \times 10^{8}`}},
		{"300", []string{"3x10^2", "3*10**2"}},
		{"1000000", []string{"10⁶"}},
		{"1/100", []string{"10⁻²"}},
		{"1024", []string{"2^" + strings.Repeat("0", 30) + "10", "2^10", "2^{10}", "2**10"}},
		{"-", []string{"2^n", "0^-1", "2^" + strings.Repeat("0", 32) + "1"}},
		{"5", []string{"5 m^2", "5 m²", "5 cm^{3}"}},
		{"4", []string{"3 × 4"}},

		{"50", []string{"50%", `50\%`, "50 %", "50％", "５０"}},
		{"2469/2", []string{"１，２３４．５"}},
		{"42", []string{"𝟒𝟐"}},

		{"1/2", []string{
			"1/2", "1 / 2", "1\u20442", `\frac{1}{2}`, `\tfrac{1}{2}`, `\dfrac12`, `\boxed{\frac{1}{2}}`, "½",
		}},
		{"-1/2", []string{"-1/2", `-\frac{1}{2}`, `\frac{-1}{2}`}},
		{"2", []string{"4/2"}},
		{"3/4", []string{"1.5/2"}},
		{"1/72", []string{`\frac1{72}`}},
		{"3/2", []string{`\frac{ 3 }2`}},
		{"1000/3", []string{`\frac{1{,}000}{3}`}},
		{"-3/4", []string{"\u2212¾"}},
		{"5/2", []string{"2 1/2", `2\frac{1}{2}`, `2 \frac12`, "2½", "step 3 5/2"}},
		{"-5/2", []string{"-2½"}},
		{"-", []string{
			`3\frac{5}{2}`, "1/0", "1/2/3", "11/25/2026", `\frac{x}{2}`, `\frac{\pi}{2}`, `\frac{1}{2`, `\frac{1}{2b`, "2^{3b", `\frac`,
			`1\frac`, `\sqrt{2}`, `2\sqrt{3}`, "√2", `\sqrt[3]{8}`, `0.\overline{3}`, `2\pi`, "2π", `\binom{5}{2}`,
			"0x1F",
		}},
		{"60", []string{"60 km/h"}},

		{"9007199254740993", []string{"9007199254740993"}},
		{"123456789012345678901234567890", []string{"123456789012345678901234567890"}},
		{"1000000000000000000001/10000000000000000000000", []string{"0.1000000000000000000001"}},
		{"-", []string{
			"1e999999999", "1e-999999999999999999999999", "9^999999999", "10^99999999999999999999",
			strings.Repeat("9", 100_000), "3×10^999999999",
		}},
		{"30", []string{"at 10:30"}},
		{"25", []string{"2026-11-25"}},
		{"1", []string{"1st"}},
		{"3", []string{"3..."}},
		{"1000", []string{"1\u200B000"}},
	} {
		for _, output := range tt.texts {
			checkNumber(t, output, tt.want)
		}
	}
}

func checkNumber(t *testing.T, output, want string) {
	t.Helper()
	if want == "-" {
		for _, probe := range []string{"0", "1", "2", "3", "9", "31", "1/2", "999999999"} {
			if got := scored(t, reward.Number{}, probe, output); got != 0 {
				t.Errorf("%.60q equals %s, want no number", output, probe)
			}
		}
		return
	}
	if got := scored(t, reward.Number{}, want, output); got != 1 {
		r, _ := reward.Number{}.Score(t.Context(), &collector.Task{Answer: &want}, &collector.Reply{Output: output})
		t.Errorf("%.60q: %s, want %s", output, r.Details, want)
	}
	v, _ := new(big.Rat).SetString(want)
	other := new(big.Rat).Add(v, big.NewRat(1, 1<<62)).RatString()
	if got := scored(t, reward.Number{}, other, output); got != 0 {
		t.Errorf("%.60q equals %s, which is not %s", output, other, want)
	}
}

// TestPlainAnswer checks that an answer is one plain number or an error in the task.
func TestPlainAnswer(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"72", " 72\n", "-3", "\u22123", "+3", "$1,234.50", "1,000", "50%", `50\%`, "5€", "5 €", "1e3", "1/2", `\frac{1}{2}`, `$\frac12$`, `\(72\)`, `\[72\]`, "**72**", `\boxed{8{,}000}`, `$\boxed{72}$.`,
		"2 1/2", "72.", "9007199254740993", "steps… 3 #### 1,000", "#### -5", "3×10^8", "10⁶", "½", ".5", "8\u202F000", "1e4000",
	} {
		if err := (reward.Number{}).Check(&collector.Task{Answer: &answer}); err != nil {
			t.Errorf("%q: %v", answer, err)
		}
		if got := scored(t, reward.Number{}, answer, "So it is "+answer); got != 1 {
			t.Errorf("%q does not equal itself", answer)
		}
	}
	for _, answer := range []string{
		"", " ", "one", "72 apples", "x = 5", "3,14", "1,0000", "1, 2", "(3, 4)", "10-20", "3\u20135", "10:30", "2026-11-25", "1.2.3", "1.000.000", "1/0", "1/2/3", `\sqrt{2}`, `2\sqrt{3}`, `2\pi`, "2π", "5x", "0x1F", "Infinity", "NaN",
		"1e999999999", strings.Repeat("9", 100_000), "#### ", "#### 5 #### five", "true", "2^n", "5 m", "5^", "--5", "(5)", "{5}", "$", "%", "5%5", "8 000",
	} {
		err := (reward.Number{}).Check(&collector.Task{Answer: &answer})
		if _, ok := errors.AsType[*reward.AnswerError](err); !ok || !errors.Is(err, collector.ErrNoAnswer) || len(err.Error()) > 300 {
			t.Errorf("%.60q: %v, want an *AnswerError", answer, err)
		}
		if got := scored(t, reward.Number{}, answer, answer); got != -1 {
			t.Errorf("%.60q has reward %v", answer, got)
		}
	}
	if err := (reward.Number{}).Check(&collector.Task{}); !errors.Is(err, collector.ErrNoAnswer) {
		t.Errorf("no answer: %v", err)
	}
}

// TestTolerance checks that the tolerance is a decimal number and is compared exactly.
func TestTolerance(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		tolerance      float64
		answer, output string
		want           float64
	}{
		{0.1, "0.3", "0.2", 1}, // 0.3-0.2 > 0.1 in floating point
		{0.1, "0.3", "0.19999999999999999999", 0},
		{0.01, "100", "101", 1},
		{0.01, "100", "101.0000000001", 0},
		{0.01, "-100", "-99", 1},
		{1e-9, "1/3", "0.333333333", 1},
		{1e-9, "1/3", "0.33333333", 0},
		{0, "1/3", "0.3333333333333333", 0},
		{0.5, "9007199254740993", "9007199254740993", 1},
	} {
		if got := scored(t, reward.Number{Tolerance: tt.tolerance}, tt.answer, tt.output); got != tt.want {
			t.Errorf("%v: %s for %s: %v, want %v", tt.tolerance, tt.output, tt.answer, got, tt.want)
		}
	}
}

// TestNumberDetails checks that the details contain the exact parsed number.
func TestNumberDetails(t *testing.T) {
	t.Parallel()
	parsed := func(output string) (collector.Reward, error) {
		return reward.Number{}.Score(t.Context(), &collector.Task{Answer: new("0")}, &collector.Reply{Output: output})
	}
	for output, want := range map[string]string{
		"72": `72`, "-1.50": `-1.5`, "9007199254740993": `9007199254740993`, "1/3": `"1/3"`, "1/8": `0.125`, "-2e2": `-200`,
	} {
		r, err := parsed(output)
		if err != nil || string(r.Details) != `{"number":`+want+`}` {
			t.Errorf("%s: %s, %v, want %s", output, r.Details, err, want)
		}
	}
	r, err := parsed("1e4000")
	if err != nil || !json.Valid(r.Details) || len(r.Details) > 200 {
		t.Errorf("1e4000: %.300s, %v", r.Details, err)
	}
}

// TestSpellings checks that random numbers in random spellings keep their value.
func TestSpellings(t *testing.T) {
	t.Parallel()
	for i := range 20_000 {
		random := rand.New(rand.NewPCG(30, uint64(i)))
		v, text := spelling(random)
		answer := v.RatString()
		if got := scored(t, reward.Number{}, answer, text); got != 1 {
			t.Fatalf("seed %d: %q is not %s", i, text, answer)
		}
	}
}

// spelling returns a random number and a text that ends with it.
func spelling(random *rand.Rand) (*big.Rat, string) {
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	n := random.Int64N(1 << uint(1+random.IntN(62)))
	v, text := new(big.Rat).SetInt64(n), fmt.Sprint(n)
	if random.IntN(2) == 0 {
		text = grouped(text, pick(",", "{,}", `,\!`, `\,`, "\u00A0", "\u202F", "\u2009", "'", "_", ""))
	}
	switch random.IntN(6) {
	case 0:
		frac := random.IntN(1000)
		text += fmt.Sprintf(".%03d", frac)
		v.Add(v, big.NewRat(int64(frac), 1000))
	case 1:
		den := 1 + random.Int64N(1000)
		text += pick("/", " / ", "\u2044") + fmt.Sprint(den)
		v.Quo(v, big.NewRat(den, 1))
	case 2:
		den := 2 + random.Int64N(1000)
		num := 1 + random.Int64N(den-1)
		text += fmt.Sprintf(pick(" %d/%d", `\frac{%d}{%d}`, ` \tfrac{%d}{%d}`), num, den)
		v.Add(v, big.NewRat(num, den))
	case 3:
		exp := random.IntN(40) - 20
		ten := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exp, -exp))), nil))
		text += fmt.Sprintf(pick("e%d", "E%d", "×10^{%d}", ` \times 10^{%d}`, " * 10^%d"), exp)
		if exp < 0 {
			ten.Inv(ten)
		}
		v.Mul(v, ten)
	}
	if random.IntN(2) == 0 {
		text = pick("-", "\u2212", "\uFE63", "\uFF0D") + pick("", "$", "€") + text
		v.Neg(v)
	}
	before := pick("", "So ", "x=", "10 and ", "(", "答案是", "$", `\boxed{`, "≈ ")
	return v, before + text + pick("", ".", "%", " apples", "}", ")", "$", "€", `\%`, "\n")
}

func grouped(digits, sep string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + sep + digits[i:]
	}
	return digits
}

// TestJSONNumbers compares JSON numbers by their exact values.
func TestJSONNumbers(t *testing.T) {
	t.Parallel()
	s := must(reward.NewJSON("v"))
	for _, tt := range []struct {
		answer, value string
		want          float64
	}{
		{"9007199254740993", "9007199254740993", 1},
		{"9007199254740993", "9007199254740992", 0},
		{"9007199254740993", "9007199254740993.0", 1},
		{"1000", "1e3", 1},
		{"0.1", "1E-1", 1},
		{"0.1", "0.10000000000000000001", 0},
		{"0", "-0.0", 1},
		{"0", "0e999", 1},
		{"-5", "5", 0},
		{"-50", "-5e1", 1},
		{"1e999999999999", "10e999999999998", 1},
		{"1e999999999999", "1e999999999998", 0},
		{"1e99999999999999999999", "1e99999999999999999999", 1},
		{"1e99999999999999999999", "1e99999999999999999998", 0},
		{"[1,2]", "[1.0,2e0]", 1},
		{`{"a":12345678901234567890}`, `{"a":12345678901234567891}`, 0},
		{"1", "true", 0},
		{"true", "true", 1},
		{"null", "null", 1},
		{"1", `"1"`, 1},
	} {
		if got := scored(t, s, tt.answer, `{"v":`+tt.value+`}`); got != tt.want {
			t.Errorf("%s for %s: %v, want %v", tt.value, tt.answer, got, tt.want)
		}
	}
}

// TestHostileNumbers checks that parsing time is linear in the length of the text.
func TestHostileNumbers(t *testing.T) {
	t.Parallel()
	began := time.Now()
	for _, text := range []string{
		`\sqrt{`, `\frac{`, `\frac`, "^{", "1 ", "1/", "1,000", "1\u00A0", "9^", "2^2", "10^10×", "½", "⁻", "¹", "$", "-", "1e", "1.", "{", "1 1/2", "×10^9", "0x", "8{,}", "9e4000/3e4000 ",
	} {
		scored(t, reward.Number{}, "1", strings.Repeat(text, 400_000/len(text)))
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
}

func FuzzNumber(f *testing.F) {
	for _, text := range []string{"x = \u22123", `\boxed{8{,}000}`, `2\frac{1}{2}`, "3×10^8", "10⁻²", "1/2/3", "1e999999999", "٣", `\frac{-1}2`, "8\u202F000.141\u202F592"} {
		f.Add(text, "72")
		f.Add("a 72", text)
	}
	f.Add("a 72", `2\frac{1}{2b~`)
	f.Fuzz(func(t *testing.T, output, answer string) {
		got := scored(t, reward.Number{}, answer, output)
		bad := (reward.Number{}).Check(&collector.Task{Answer: &answer}) != nil
		if bad != (got < 0) {
			t.Fatalf("%q: reward %v", answer, got)
		}
		if !bad && scored(t, reward.Number{}, answer, answer) != 1 {
			t.Fatalf("%q does not equal itself", answer)
		}
	})
}
