--- Reads Slurm's numeric fields: nil for the value that means «not set», and for what is not a number.
-- slurm.h has given these sentinels the same values in every release; INFINITE lies above its NO_VAL.
local numbers = {}

local NO_VAL16 = 0xfffe
local NO_VAL = 0xfffffffe

--- On Lua 5.3 and 5.4 a Slurm number is a float, which some JSON encoders print as 8.0.
local as_integer = math.tointeger or function(value)
   return value
end

local function whole_number_below(value, sentinel)
   if type(value) ~= "number" or value < 0 or value >= sentinel or value ~= math.floor(value) then
      return nil
   end
   return as_integer(value)
end

--- Reads a field of 16 bits.
function numbers.narrow(value)
   return whole_number_below(value, NO_VAL16)
end

--- Reads a field of 32 bits, or one of 64 bits in which values of more than 32 bits make no sense.
function numbers.wide(value)
   return whole_number_below(value, NO_VAL)
end

--- Returns `value` unless it is nil or 0.
function numbers.at_least_one(value)
   return value and value >= 1 and value or nil
end

return numbers
