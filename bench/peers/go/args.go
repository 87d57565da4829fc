package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

const (
	clientGo          = "client-go"
	controllerRuntime = "controller-runtime"
	xTimeRate         = "x-time-rate"
)

// args are the parameters of one measurement, defaults filled in.
type args struct {
	workload string
	impl     string
	names    []string // in the order of the specification
	values   map[string]string
}

// unknown ends the program because of something that was asked for wrongly.
func unknown(format string, a ...any) {
	fmt.Fprintf(os.Stderr, "unknown "+format+"\n", a...)
	os.Exit(2)
}

// cannot ends the program because the peer has nothing to measure here.
func cannot(format string, a ...any) {
	fmt.Fprintf(os.Stderr, "cannot be measured: "+format+"\n", a...)
	os.Exit(3)
}

func parse(workload string, spec, given []string) args {
	a := args{workload: workload, impl: clientGo, values: map[string]string{}}
	allowed := map[string][]string{}
	for _, s := range spec {
		name, values, _ := strings.Cut(s, "=")
		a.names = append(a.names, name)
		allowed[name] = strings.Split(values, "|")
		a.values[name] = allowed[name][0]
	}
	for _, g := range given {
		name, value, ok := strings.Cut(g, "=")
		if !ok {
			unknown("argument %q of %s, expected name=value", g, workload)
		}
		if name == "impl" {
			if !slices.Contains([]string{clientGo, controllerRuntime, xTimeRate}, value) {
				unknown("impl %q", value)
			}
			a.impl = value
			continue
		}
		values, ok := allowed[name]
		if !ok {
			unknown("parameter %q of %s, which takes %v", name, workload, a.names)
		}
		if len(values) > 1 {
			if !slices.Contains(values, value) {
				unknown("value %q of %s, which takes %v", value, name, values)
			}
		} else if v, err := strconv.Atoi(value); err != nil || v < 1 {
			unknown("value %q of %s, which takes a positive number", value, name)
		}
		a.values[name] = value
	}
	if m, ok := a.values["mode"]; ok && m != "goroutines" {
		cannot("mode=%s, Go has mode=goroutines", m)
	}
	return a
}

func (a args) get(name string) string { return a.values[name] }

func (a args) num(name string) int {
	v, err := strconv.Atoi(a.values[name])
	if err != nil {
		panic(err) // parse has looked at it
	}
	return v
}

// plainOnly refuses the forms that only exist elsewhere.
func (a args) plainOnly() {
	if f := a.get("form"); f != "plain" {
		cannot("form=%s, %s has one key a call", f, a.impl)
	}
}

func (a args) params() string {
	var b strings.Builder
	for i, name := range a.names {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(name + "=" + a.values[name])
	}
	return b.String()
}
