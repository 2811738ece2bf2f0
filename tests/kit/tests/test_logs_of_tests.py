\"\"\"What services log in the process of the tests.\"\"\"
