// Program echo-advanced is both ends of the mesh tests of the Gateway API's conformance suite: a server that describes each request in its
// answer, and, called by the name `client`, the program that the suite runs inside of Pods.
//
// Both print lines `Key=value`, of which the suite reads StatusCode, Hostname, Host, URL, Method, Proto, RequestHeader and ResponseHeader.
//
//	echo-advanced [--port=N]… [--tls=N]… [--grpc=N]… [--tcp=N]… [--crt=FILE --key=FILE]
//	client URL [--method=M] [-H NAME:VALUE]… [--count=N]
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	run := serve
	if filepath.Base(os.Args[0]) == "client" {
		run = request
	}
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
