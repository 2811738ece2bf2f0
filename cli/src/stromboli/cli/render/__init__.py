"""What commands print: tables, trees and texts. Pure, except for the terminal's width."""
