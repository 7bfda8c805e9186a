// What the programs of clients in Go share: features that are tried, each with a line of JSON about it.
package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
)

func feature(name string, check func() error) {
	var detail any
	err := func() (err error) {
		defer func() {
			if caught := recover(); caught != nil {
				err = fmt.Errorf("%v", caught)
			}
		}()
		return check()
	}()
	if err != nil {
		detail = err.Error()
	}
	line, _ := json.Marshal(detail)
	fmt.Printf("{\"feature\": %q, \"ok\": %t, \"detail\": %s}\n", name, err == nil, line)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func equal[T comparable](expected, got T) {
	if expected != got {
		panic(fmt.Sprintf("expected %v, got %v", expected, got))
	}
}

func newName() string {
	random := make([]byte, 4)
	rand.Read(random)
	return fmt.Sprintf("go-%x", random)
}
