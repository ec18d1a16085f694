package handover

import (
	"encoding/binary"
	"math"
)

// This file contains the few operations of Python's pickle format, protocol 2, that slime's samples need.
// Source: Lib/pickle.py of CPython.

const (
	pickleHead = "\x80\x02"
	pickleEnd  = "."
	beginDict  = "}("
	endDict    = "u"
	beginList  = "]("
	endList    = "e"
	emptyList  = "]"
	appendItem = "a" // appends the last value to the list below it
)

func pickleText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(append(b, 'X'), uint32(len(s))), s...)
}

func pickleInt(b []byte, n int32) []byte {
	if n >= 0 && n < 1<<8 {
		return append(b, 'K', byte(n))
	}
	if n >= 0 && n < 1<<16 {
		return binary.LittleEndian.AppendUint16(append(b, 'M'), uint16(n))
	}
	return binary.LittleEndian.AppendUint32(append(b, 'J'), uint32(n))
}

func pickleFloat(b []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 'G'), math.Float64bits(v))
}

func pickleList[T any](b []byte, list []T, one func([]byte, T) []byte) []byte {
	b = append(b, beginList...)
	for _, v := range list {
		b = one(b, v)
	}
	return append(b, endList...)
}
