module waypost.test/echo-advanced

go 1.26
