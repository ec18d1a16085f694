package report

import (
	"math"
	"slices"
)

// A Distribution summarizes the values of a number over rows or samples. The percentiles use the
// nearest-rank method.
type Distribution struct {
	Count int     `json:"count"`
	Mean  float64 `json:"mean"`
	Std   float64 `json:"std"` // population standard deviation
	Min   float64 `json:"min"`
	P10   float64 `json:"p10"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
	// Bins counts every value once. A bin covers [From, To), but the last bin includes To.
	Bins []Bin `json:"bins"`
}

// A Bin counts the values between its bounds.
type Bin struct {
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	Count int     `json:"count"`
}

// A histogram has one bin per value if there are at most fewValues distinct values, such as rewards
// of 0 and 1. Otherwise its bins have a round width, and maxBins is the approximate maximum number
// of bins.
const (
	fewValues = 12
	maxBins   = 24
)

// distribute summarizes values, which it sorts in place. It returns nil if there are none.
func distribute(values []float64) *Distribution {
	if len(values) == 0 {
		return nil
	}
	slices.Sort(values)
	n := float64(len(values))
	d := &Distribution{Count: len(values), Min: values[0], Max: values[len(values)-1]}
	for _, v := range values {
		d.Mean += v
	}
	d.Mean /= n
	for _, v := range values {
		d.Std += (v - d.Mean) * (v - d.Mean) / n
	}
	d.Std = math.Sqrt(d.Std)
	rank := func(p float64) float64 { return values[max(0, int(math.Ceil(p*n))-1)] }
	d.P10, d.P50, d.P90, d.P99 = rank(.1), rank(.5), rank(.9), rank(.99)
	d.Bins = bins(values)
	return d
}

func bins(values []float64) []Bin {
	var few []Bin
	for _, v := range values {
		if k := len(few); k > 0 && few[k-1].From == v {
			few[k-1].Count++
			continue
		}
		if len(few) == fewValues {
			few = nil
			break
		}
		few = append(few, Bin{From: v, To: v, Count: 1})
	}
	if few != nil {
		return few
	}
	low, high := values[0], values[len(values)-1]
	width := roundStep((high - low) / maxBins)
	start := math.Floor(low/width) * width
	out := make([]Bin, 0, maxBins+2)
	for i := 0; ; i++ {
		b := Bin{From: start + float64(i)*width, To: start + float64(i+1)*width}
		out = append(out, b)
		if b.To > high {
			break
		}
	}
	at := 0
	for _, v := range values {
		for at < len(out)-1 && v >= out[at].To {
			at++
		}
		out[at].Count++
	}
	return out
}

// roundStep returns the smallest number that is at least x and is 1, 2, 2.5 or 5 times a power of
// ten. The number x must be positive.
func roundStep(x float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if x <= m*p*(1+1e-9) {
			return m * p
		}
	}
	return 10 * p
}
