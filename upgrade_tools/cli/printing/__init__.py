"""What commands print.

documents, entry_documents
               as JSON: reports, and entries
entry_output, delta_listing, difference_output, inspect_report
               as lines and tables
output         stdout, stderr, progress bars
"""
